// Sorting doubles with a 32-bit payload: a stable radix sort that ends in dense tie groups.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace uq {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

// Uninitialised memory that a thread keeps between calls: at 1e5 rows first-touch page faults
// are a third of the time. Large blocks go back at once.
class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() { std::free(data_); }

    template <class T> T *get(std::size_t n) {
        const std::size_t bytes = std::max<std::size_t>(n * sizeof(T), 64);
        if (bytes > capacity_) {
            std::free(data_);
            capacity_ = 0;
            data_ = std::malloc(bytes);
            if (!data_) throw std::bad_alloc();
            capacity_ = bytes;
        }
        return static_cast<T *>(data_);
    }

    void trim() {
        if (capacity_ > kKeep) {
            std::free(data_);
            data_ = nullptr;
            capacity_ = 0;
        }
    }

  private:
    static constexpr std::size_t kKeep = std::size_t(1) << 24;
    void *data_ = nullptr;
    std::size_t capacity_ = 0;
};

struct Workspace {
    Buffer words, spare, order, row_of_rank, tie_start, tie_end, cursor, counts;
    void trim() {
        for (Buffer *b : {&words, &spare, &order, &row_of_rank, &tie_start, &tie_end, &cursor, &counts}) b->trim();
    }
};

// A sum that passes 2^64: two words with carry.
struct Wide {
    u64 high = 0, low = 0;
    void add(u64 x) {
        low += x;
        high += low < x;
    }
    // x^2 * times without overflow: x^2 < 2^64, and the halves of the product are added apart.
    void add_times(u64 x, u64 times) {
        const u64 square = x * x, part = (square & 0xffffffffu) * times;
        add(part);
        const u64 upper = (square >> 32) * times;
        add(upper << 32);
        high += upper >> 32;
    }
};

// Order-preserving bits of a double; adding 0.0 makes -0.0 equal to 0.0.
inline u64 key_of(double x) {
    x += 0.0;
    u64 bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits ^ (static_cast<u64>(static_cast<i64>(bits) >> 63) | (u64(1) << 63));
}

// How a column's keys fit into 32 bits: (key - least) >> shift.
struct KeyRange {
    u64 least = 0;
    int shift = 0;
    int bits = 0;  // used bits after the shift
};

inline int bit_width(u64 x) {
    int width = 0;
    while (x) {
        ++width;
        x >>= 1;
    }
    return width;
}

inline KeyRange key_range(const double *x, std::size_t n) {
    KeyRange range;
    if (n == 0) return range;
    // Four chains at a time: a single one would wait for each comparison.
    double low[4] = {x[0], x[0], x[0], x[0]}, high[4] = {x[0], x[0], x[0], x[0]};
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int k = 0; k < 4; ++k) {
            low[k] = x[i + k] < low[k] ? x[i + k] : low[k];
            high[k] = x[i + k] > high[k] ? x[i + k] : high[k];
        }
    }
    for (; i < n; ++i) {
        low[0] = std::min(low[0], x[i]);
        high[0] = std::max(high[0], x[i]);
    }
    const u64 least = key_of(*std::min_element(low, low + 4)), most = key_of(*std::max_element(high, high + 4));
    const int width = bit_width(most - least);
    range.least = least;
    range.shift = width > 32 ? width - 32 : 0;
    range.bits = width - range.shift;
    return range;
}

// Stable least-significant-digit radix sort on bits 32.. of each word. Returns where the result is.
template <int Bits> u64 *radix_passes(u64 *a, u64 *b, std::size_t n, int key_bits) {
    constexpr u32 kSize = u32(1) << Bits;
    const int passes = (key_bits + Bits - 1) / Bits;
    std::vector<u32> histogram(static_cast<std::size_t>(passes) * kSize, 0);
    for (std::size_t i = 0; i < n; ++i) {
        u64 key = a[i] >> 32;
        for (int p = 0; p < passes; ++p, key >>= Bits) ++histogram[p * kSize + (key & (kSize - 1))];
    }
    for (int p = 0; p < passes; ++p) {
        u32 *count = &histogram[static_cast<std::size_t>(p) * kSize];
        const int shift = 32 + p * Bits;
        if (count[(a[0] >> shift) & (kSize - 1)] == n) continue;  // a constant digit
        u32 start = 0;
        for (u32 k = 0; k < kSize; ++k) {
            const u32 size = count[k];
            count[k] = start;
            start += size;
        }
        for (std::size_t i = 0; i < n; ++i) {
            const u64 word = a[i];
            b[count[(word >> shift) & (kSize - 1)]++] = word;
        }
        std::swap(a, b);
    }
    return a;
}

inline u64 *radix_sort(u64 *a, u64 *b, std::size_t n, int key_bits) {
    if (n < 2 || key_bits == 0) return a;
    if (n <= 48) {
        // Payloads ascend within equal keys, so whole words sort stably.
        for (std::size_t i = 1; i < n; ++i) {
            const u64 word = a[i];
            std::size_t j = i;
            for (; j > 0 && a[j - 1] > word; --j) a[j] = a[j - 1];
            a[j] = word;
        }
        return a;
    }
    return (n > 6000 && n < 200000) ? radix_passes<11>(a, b, n, key_bits) : radix_passes<8>(a, b, n, key_bits);
}

// Sorts words (key32 << 32 | payload, payloads ascending where keys tie) and returns them with the number of groups
// of equal values. `full_key(payload)` gives the 64-bit key that decides where 32 bits collide. If groups < n, the
// upper half of each word becomes the index of its group; if groups == n it means nothing.
template <class FullKey>
u64 *sort_into_groups(u64 *words, u64 *spare, std::size_t n, const KeyRange &range, std::size_t &groups,
                      FullKey full_key) {
    u64 *sorted = radix_sort(words, spare, n, range.bits);
    const auto key = [&](std::size_t i) { return sorted[i] >> 32; };
    const auto full = [&](std::size_t i) { return full_key(static_cast<u32>(sorted[i])); };
    const bool exact = range.shift == 0;
    bool ties = false;
    std::vector<std::pair<u64, u32>> run;
    std::vector<std::size_t> splits;  // slots where a new value starts although the 32 bits go on
    for (std::size_t i = 1; i < n; ++i) {
        if (key(i) != key(i - 1)) continue;
        if (exact) {
            ties = true;
            break;
        }
        const std::size_t start = i - 1;
        std::size_t end = i + 1;
        while (end < n && key(end) == key(i)) ++end;
        const u64 first = full(start);
        std::size_t same = start + 1;
        while (same < end && full(same) == first) ++same;
        if (same < end) {  // not one repeated value: sort by the full key, payload breaks ties
            run.clear();
            for (std::size_t j = start; j < end; ++j) run.emplace_back(full(j), static_cast<u32>(sorted[j]));
            std::sort(run.begin(), run.end());
            for (std::size_t j = start; j < end; ++j) {
                sorted[j] = (sorted[j] >> 32 << 32) | run[j - start].second;
                if (j == start) continue;
                if (run[j - start].first == run[j - start - 1].first) {
                    ties = true;
                } else {
                    splits.push_back(j);
                }
            }
        } else {
            ties = true;
        }
        i = end - 1;
    }
    groups = n;
    if (!ties) return sorted;
    u64 group = 0, former = n ? key(0) : 0;
    std::size_t next_split = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const u64 now = key(i);
        const bool split = next_split < splits.size() && splits[next_split] == i;
        next_split += split;
        group += split || now != former;
        former = now;
        sorted[i] = group << 32 | static_cast<u32>(sorted[i]);
    }
    groups = group + 1;
    return sorted;
}

}  // namespace uq
