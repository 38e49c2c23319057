// Scores of few values (rounded probabilities, votes): a table of the values takes the place of sorting.
#pragma once

#include "map.hpp"

namespace uq {

constexpr std::size_t kMostValues = 2048;

// The values that there are, and the rank of each row's among them.
struct Values {
    std::vector<double> sorted;
    const u16 *rank = nullptr;
    std::size_t count() const { return sorted.size(); }
};

// Numbers 0, 1, … in the order in which values come; at most `most` of them.
class Dictionary {
  public:
    static constexpr u16 kNone = 65535;

    explicit Dictionary(std::size_t most) : most_(most), bits_(bit_width(2 * most - 1)), slots_(std::size_t(1) << bits_) {}

    // The number of x, or kNone if there are too many values already.
    u16 code(double x) {
        const u64 key = key_of(x);
        for (std::size_t at = (key * 0x9E3779B97F4A7C15u) >> (64 - bits_);; at = (at + 1) & (slots_.size() - 1)) {
            Slot &slot = slots_[at];
            if (slot.key == key && slot.code != kNone) return slot.code;
            if (slot.code == kNone) {
                if (values_.size() == most_) return kNone;
                slot = {key, static_cast<u16>(values_.size())};
                values_.push_back(x + 0.0);
                return slot.code;
            }
        }
    }
    const std::vector<double> &values() const { return values_; }

  private:
    struct Slot {
        u64 key = 0;
        u16 code = kNone;
    };
    std::size_t most_;
    int bits_;
    std::vector<Slot> slots_;
    std::vector<double> values_;
};

// Twin of kernels.plain.grid.to_grid, bit for bit.
inline void to_grid(double *x, std::size_t n, double parts, bool narrow) {
    constexpr double kNoise = 0x1p-46, kRound = 0x1.8p52;  // adding and taking away the second rounds half to even
    const double most = parts * kNoise;
    if (narrow) {
        for (std::size_t i = 0; i < n; ++i) {
            const double whole = x[i] * parts + kRound - kRound, fraction = whole / parts;
            const bool same = static_cast<double>(static_cast<float>(fraction)) == x[i];
            x[i] = (same & (whole >= 1) & (whole < parts)) ? fraction : x[i];
        }
        return;
    }
    for (std::size_t i = 0; i < n; ++i) {
        const double at = x[i] * parts, whole = at + kRound - kRound, fraction = whole / parts;
        x[i] = ((std::abs(at - whole) <= most) & (whole >= 1) & (whole < parts)) ? fraction : x[i];
    }
}

// About how many values there are, from how often a sample repeats itself; 0 where they seem to be more than kMostValues.
inline std::size_t guess_values(const double *x, std::size_t n) {
    constexpr std::size_t kSample = 256, kLeast = kSample * kSample / (2 * kMostValues);  // pairs of rows that are alike
    if (n < 4 * kMostValues) return 0;
    Dictionary seen(kSample);
    for (std::size_t i = 0; i < kSample; ++i) seen.code(x[i * (n / kSample)]);
    const std::size_t values = seen.values().size(), repeats = kSample - values;
    return repeats < kLeast ? 0 : std::max(values, kSample * kSample / (2 * repeats));
}

// False if there are more than kMostValues; nothing can be said then.
inline bool find_values(const double *x, std::size_t n, int threads, Buffer &memory, Values &found) {
    if (!guess_values(x, n)) return false;
    u16 *rank = memory.get<u16>(n);
    const std::size_t parts = static_cast<std::size_t>(std::max(threads, 1));
    std::vector<Dictionary> own(parts, Dictionary(kMostValues));
    std::atomic<bool> many{false};
    over_rows(n, threads, [&](std::size_t t, std::size_t from, std::size_t to) {
        Dictionary &seen = own[t];
        for (std::size_t i = from; i < to && !many; ++i) {
            rank[i] = seen.code(x[i]);
            if (rank[i] == Dictionary::kNone) many = true;
        }
    });
    if (many) return false;
    for (const Dictionary &seen : own) found.sorted.insert(found.sorted.end(), seen.values().begin(), seen.values().end());
    std::sort(found.sorted.begin(), found.sorted.end());
    found.sorted.erase(std::unique(found.sorted.begin(), found.sorted.end()), found.sorted.end());
    if (found.count() > kMostValues) return false;
    over_rows(n, threads, [&](std::size_t t, std::size_t from, std::size_t to) {
        std::vector<u16> rank_of(own[t].values().size());
        for (std::size_t k = 0; k < rank_of.size(); ++k) {
            rank_of[k] = static_cast<u16>(
                std::lower_bound(found.sorted.begin(), found.sorted.end(), own[t].values()[k]) - found.sorted.begin());
        }
        for (std::size_t i = from; i < to; ++i) rank[i] = rank_of[rank[i]];
    });
    found.rank = rank;
    return true;
}

// Rows of each value: those with the bit set (or none, without bits), and the others.
struct ValueRows {
    u64 marked = 0, others = 0;
    u64 rows() const { return marked + others; }
};

inline std::vector<ValueRows> rows_of_values(const Values &values, const u8 *bit, std::size_t n) {
    std::vector<ValueRows> found(values.count());
    std::vector<u32> count(2 * values.count(), 0);
    for (std::size_t i = 0; i < n; ++i) ++count[2 * values.rank[i] + (bit ? bit[i] : 0)];
    for (std::size_t v = 0; v < found.size(); ++v) found[v] = {count[2 * v + 1], count[2 * v]};
    return found;
}

}  // namespace uq
