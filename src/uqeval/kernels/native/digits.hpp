// For each item of a permutation: how many before it have a smaller rank? Digit by digit from the top, each time against
// the smaller digits of the same block, then by bits where few ranks are left.
#pragma once

#include "basics.hpp"

namespace uq {

// How many of up to 255 items so far have a smaller digit, for each digit at once. A digit adds 1 to all that are greater:
// one addition of a row of a table, which nothing has to wait for.
template <class Lane, int Bits> struct BelowTable {
    static constexpr std::size_t kWays = std::size_t(1) << Bits;
    alignas(64) Lane of[kWays][kWays] = {};
    constexpr BelowTable() {
        for (std::size_t digit = 0; digit < kWays; ++digit) {
            for (std::size_t lane = digit + 1; lane < kWays; ++lane) of[digit][lane] = 1;
        }
    }
};

template <class Lane, int Bits> class Below {
  public:
    static constexpr std::size_t kWays = std::size_t(1) << Bits;

    u32 operator[](u32 digit) const { return now_[digit]; }
    void add(u32 digit) {
        const char *row = reinterpret_cast<const char *>(kTable.of[digit]);
        char *now = reinterpret_cast<char *>(now_);
        for (std::size_t k = 0; k < kWords; ++k) {  // sums stay in registers and are written, to be read by digit
            Word word;
            std::memcpy(&word, row + k * sizeof word, sizeof word);
            sum_[k] += word;
            std::memcpy(now + k * sizeof word, &sum_[k], sizeof word);
        }
    }

  private:
#if defined(__GNUC__)
    static constexpr std::size_t kBytes = kWays * sizeof(Lane) < 32 ? 16 : 32;
    typedef Lane Word __attribute__((vector_size(kBytes)));
#else
    static constexpr std::size_t kBytes = 8;  // no lane passes its greatest number: words do as well
    using Word = u64;
#endif
    static constexpr std::size_t kWords = kWays * sizeof(Lane) / kBytes;
    static constexpr BelowTable<Lane, Bits> kTable{};
    Word sum_[kWords] = {};
    alignas(64) Lane now_[kWays] = {};
};

inline u32 bits_set(u64 x) {
#if defined(__GNUC__)
    return static_cast<u32>(__builtin_popcountll(x));
#else
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    return static_cast<u32>((((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u) >> 56);
#endif
}

constexpr int kLeafBits = 10, kMostBits = 6;
constexpr std::size_t kLeaf = std::size_t(1) << kLeafBits;

// Of a block with that many bits of ranks, more than a leaf has: the bits that the next step leaves.
inline int next_shift(int bits) {
    const int steps = (bits - kLeafBits + kMostBits - 1) / kMostBits;
    return bits - (bits - kLeafBits + steps - 1) / steps;
}

// Ranks of a block are the range [low, low + n). One step: count against smaller digits, scatter by digit. item_at(i) is
// the i-th item.
template <int Bits, class Item, class At, class Sink>
UQ_WIDE void count_step(At item_at, Item *out, std::size_t n, u32 low, int shift, Sink &sink) {
    constexpr u32 kWays = u32(1) << Bits;
    u32 below[kWays] = {}, place[kWays];
    for (u32 k = 0; k < kWays; ++k) place[k] = k << shift;
    for (std::size_t i = 0; i < n;) {
        Below<u8, Bits> smaller;
        const std::size_t stop = std::min(n, i + 255);
        for (; i < stop; ++i) {
            Item item = item_at(i);
            const u32 digit = (sink.rank(item) - low) >> shift;
            sink.add(item, below[digit] + smaller[digit]);
            smaller.add(digit);
            out[place[digit]++] = item;
        }
        for (u32 k = 0; k < kWays; ++k) below[k] += smaller[k];
    }
}

template <class Item, class At, class Sink>
void count_digits(At item_at, Item *out, std::size_t n, u32 low, int shift, Sink &sink) {
    const std::size_t digits = ((n - 1) >> shift) + 1;
    if (digits <= 16) return count_step<4, Item>(item_at, out, n, low, shift, sink);
    if (digits <= 32) return count_step<5, Item>(item_at, out, n, low, shift, sink);
    count_step<6, Item>(item_at, out, n, low, shift, sink);
}

// Up to 1024 ranks: by the upper digit as before, by the lower one with bits.
template <class Item, class Sink> UQ_WIDE void count_leaf(const Item *in, std::size_t n, u32 low, Sink &sink) {
    Below<u16, 4> smaller;
    u64 seen[16] = {};
    for (std::size_t i = 0; i < n; ++i) {
        Item item = in[i];
        const u32 rank = sink.rank(item) - low, digit = rank >> 6;
        const u64 bit = u64(1) << (rank & 63);
        sink.add(item, smaller[digit] + bits_set(seen[digit] & (bit - 1)));
        seen[digit] |= bit;
        smaller.add(digit);
        sink.finish(item);
    }
}

template <class Item> struct InOrder {
    const Item *in;
    Item operator()(std::size_t i) const { return in[i]; }
};

// Ranks of the block have that many bits.
template <class Item, class Sink>
void count_below(Item *in, Item *spare, std::size_t n, u32 low, int bits, Sink &sink) {
    if (n <= kLeaf) return count_leaf(in, n, low, sink);
    const int shift = next_shift(bits);
    count_digits<Item>(InOrder<Item>{in}, spare, n, low, shift, sink);
    for (std::size_t start = 0; start < n; start += std::size_t(1) << shift) {
        const std::size_t size = std::min(n - start, std::size_t(1) << shift);
        count_below(spare + start, in + start, size, low + static_cast<u32>(start), shift, sink);
    }
}

}  // namespace uq
