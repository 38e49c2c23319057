// What every metric of 0/1 errors and its variance is made of, from the marks of `order.hpp`: one pass, no array.
//
// - UQ-AUC, AUGRC, H-AUC and the share of ties come from integers: credit2 summed and squared by class.
// - The influence of a row on AURC is g = v L + R - L' less AURC (R the risk at its place, L and L' the sums of 1/k and
//   R/k from there to the end, over the places of its ties), so a pass from the end that adds up g and g^2 by class does.
//   g is taken less the oracle's part, so that nothing cancels near a perfect ranking.
// Tied rows count by their number alone, and chunks are cut by tied blocks: the order of rows does not matter.
#pragma once

#include "order.hpp"

namespace uq {

struct ClassSums {
    double sum = 0, squares = 0;
};

struct Sweep {
    u64 n = 0, wrong = 0;
    u64 credit2 = 0;                    // over wrong rows; right rows have the same total
    Wide wrong_squares, right_squares;  // of credit2
    Wide later2;                        // over wrong rows, (twice the rows behind, tied ones half)^2
    u64 tied_pairs = 0;                 // ordered
    u64 blocks = 0;                     // of tied rows
    double aurc = 0, best = 0;          // best: the oracle's
    double slope = 0, rate = 0;         // the oracle's influence is best + slope (v - rate)
    ClassSums of_wrong, of_right;       // of e = g - best - slope (v - rate)
    double shares2 = 0;                 // over wrong rows, L^2
    double harmonic = 0;                // sum of 1/k over all places
};

// A sum of numbers of [0, 1] as integers, so that their order does not matter: `fixed_sum` of the NumPy twin.
struct Fixed {
    explicit Fixed(u64 n) {
        int bits = 0;
        for (; n; n >>= 1) ++bits;
        scale = std::ldexp(1.0, std::min(51, 62 - bits));
    }
    // A multiple of 1/scale in the low bits of a double: adding 1.5 * 2^52 rounds to nearest even.
    u64 bits_of(double x) const {
        const double y = x * scale + kMagic;
        u64 bits;
        std::memcpy(&bits, &y, sizeof bits);
        return bits;
    }
    double value(u64 sum, u64 count) const {
        u64 magic;
        std::memcpy(&magic, &kMagic, sizeof magic);
        return static_cast<double>(sum - count * magic) / scale;
    }
    static constexpr double kMagic = 6755399441055744.0;
    double scale;
};

// Mean risk of the oracle: rights first, then errors.
inline double oracle_aurc(u64 n, u64 wrong) {
    const Fixed fixed(n);
    const int right = static_cast<int>(n - wrong), errors = static_cast<int>(wrong);
    u64 sum = 0;
    for (int j = 1; j <= errors; ++j) {
        sum += fixed.bits_of(static_cast<double>(j) / static_cast<double>(right + j));
    }
    return n ? fixed.value(sum, wrong) / static_cast<double>(n) : 0.0;
}

// Of every row, in order of the score: e and credit2. Null where nobody asks.
struct SweptRows {
    double *e = nullptr;
    u32 *credit2 = nullptr;
};

// The pass from the end. Areas = false: the integers only, without `later2`.
template <bool Areas> class Sweeper {
  public:
    explicit Sweeper(const u8 *marks, std::size_t n, SweptRows rows = {}) : marks_(marks), rows_(rows), fixed_(n) {
        out_.n = n;
        for (std::size_t i = 0; i < n;) {
            u32 part = 0;
            for (const std::size_t stop = std::min(n, i + (std::size_t(1) << 20)); i < stop; ++i) part += marks[i] & kWrong;
            out_.wrong += part;
        }
        out_.rate = n ? static_cast<double>(out_.wrong) / static_cast<double>(n) : 0.0;
        out_.slope = out_.rate < 1 ? -std::log1p(-out_.rate) : 0.0;
        out_.best = Areas ? oracle_aurc(n, out_.wrong) : 0.0;
        shift_wrong_ = out_.best + out_.slope * (1 - out_.rate);
        shift_right_ = out_.best - out_.slope * out_.rate;
        bad_ = out_.wrong;
        used_ = std::min(n, kPart);
        for (double *sums : {shares_, sum1_, sum0_, square1_, square0_}) std::fill_n(sums, used_, 0.0);
    }

    Sweep run() {
        for (std::size_t to = out_.n; to > 0;) {
            std::size_t from = to - 1;
            if (marks_[from] & kNew) {  // as many rows of their own value as there are, up to a chunk
                const std::size_t stop = to > kPart ? to - kPart : 0;
                while (from >= stop + 8 && all_new(marks_ + from - 8)) from -= 8;
                while (from > stop && (marks_[from - 1] & kNew)) --from;
                chunk(from, to);
            } else {
                u64 in = marks_[from] & kWrong;
                while (!(marks_[from] & kNew)) in += marks_[--from] & kWrong;
                group(from, to, in);
            }
            to = from;
        }
        out_.shares2 += total(shares_);
        out_.of_wrong.sum += total(sum1_);
        out_.of_wrong.squares += total(square1_);
        out_.of_right.sum += total(sum0_);
        out_.of_right.squares += total(square0_);
        out_.aurc = out_.blocks <= 1 || out_.wrong == out_.n ? out_.rate : fixed_.value(risk_, out_.n) / static_cast<double>(out_.n);
        out_.harmonic = later_;
        return out_;
    }

  private:
    static constexpr std::size_t kPart = 256;

    // Whether eight marks in a row start a value each.
    static bool all_new(const u8 *marks) {
        constexpr u64 kEach = 0x0101010101010101u * kNew;
        u64 eight;
        std::memcpy(&eight, marks, 8);
        return (eight & kEach) == kEach;
    }

    // Rows that tie with none: a wrong row has place - bad right rows below, a right row W - bad wrong ones above.
    // Squares reach 2^62: their halves are summed apart.
    UQ_WIDE void credits(const u32 *UQ_RESTRICT count, std::size_t from, std::size_t size, u32 before) {
        u64 wrong_low = 0, wrong_high = 0, right_low = 0, right_high = 0, behind_low = 0, behind_high = 0, credit = 0;
        const u32 place = static_cast<u32>(from) + 1, all = static_cast<u32>(out_.wrong), n2 = static_cast<u32>(2 * out_.n - 1);
        const u8 *UQ_RESTRICT marks = marks_ + from;
        for (std::size_t i = 0; i < size; ++i) {
            const u32 bad = before + count[i], mask = 0u - (marks[i] & kWrong), at = place + static_cast<u32>(i);
            const u32 of_wrong = (at - bad) & mask, of_right = (all - bad) & ~mask;
            const u32 behind = (n2 - 2 * at + 2) & mask;
            const u64 square1 = u64(of_wrong) * of_wrong, square0 = u64(of_right) * of_right, square = u64(behind) * behind;
            credit += of_wrong;
            wrong_low += square1 & 0xffffffffu;
            wrong_high += square1 >> 32;
            right_low += square0 & 0xffffffffu;
            right_high += square0 >> 32;
            if (Areas) {
                behind_low += square & 0xffffffffu;
                behind_high += square >> 32;
            }
        }
        if (rows_.credit2) {
            for (std::size_t i = 0; i < size; ++i) {
                const u32 bad = before + count[i];
                rows_.credit2[from + i] = 2 * (marks[i] & kWrong ? place + static_cast<u32>(i) - bad : all - bad);
            }
        }
        out_.credit2 += 2 * credit;
        out_.wrong_squares.add(4 * wrong_low);
        out_.wrong_squares.add_shifted(4 * wrong_high);
        out_.right_squares.add(4 * right_low);
        out_.right_squares.add_shifted(4 * right_high);
        out_.later2.add(behind_low);
        out_.later2.add_shifted(behind_high);
    }

    // Rows [from, to), none tied.
    UQ_WIDE void chunk(std::size_t from, std::size_t to) {
        const std::size_t size = to - from;
        alignas(32) double risk[kPart], later[kPart], rest[kPart];
        u32 count[kPart], sum = 0;
        for (std::size_t i = 0; i < size; ++i) count[i] = sum += marks_[from + i] & kWrong;
        const u32 before = static_cast<u32>(bad_) - sum;
        credits(count, from, size, before);
        out_.blocks += size;
        bad_ = before;
        if (!Areas) return;
        alignas(32) double wrong[kPart], right[kPart];
        const int first = static_cast<int>(from + 1);
        for (std::size_t i = 0; i < size; ++i) {
            const int bit = marks_[from + i] & kWrong;
            const double inverse = 1.0 / static_cast<double>(first + static_cast<int>(i));
            wrong[i] = bit;
            right[i] = 1 - bit;
            risk[i] = static_cast<double>(static_cast<int>(before + count[i])) * inverse;
            later[i] = inverse;
            rest[i] = risk[i] * inverse;
        }
        later_ = add_up(later, size, later_);
        later_risk_ = add_up(rest, size, later_risk_);
        u64 risks = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const double base = risk[i] - rest[i], share = later[i] * wrong[i];
            const double one = (base + later[i] - shift_wrong_) * wrong[i], zero = (base - shift_right_) * right[i];
            risks += fixed_.bits_of(risk[i]);
            shares_[i] += share * share;
            sum1_[i] += one;
            sum0_[i] += zero;
            square1_[i] += one * one;
            square0_[i] += zero * zero;
            risk[i] = one + zero;
        }
        risk_ += risks;
        if (rows_.e) std::memcpy(rows_.e + from, risk, size * sizeof(double));
    }

    // Sums from the end, four at a time: additions that need not wait for each other.
    static double add_up(double *x, std::size_t size, double sum) {
        std::size_t i = size;
        for (; i % 4; --i) x[i - 1] = sum += x[i - 1];
        for (; i; i -= 4) {
            const double c = x[i - 2] + x[i - 1], b = x[i - 3] + c, a = x[i - 4] + b;
            x[i - 1] += sum;
            x[i - 2] = c + sum;
            x[i - 3] = b + sum;
            x[i - 4] = sum = a + sum;
        }
        return sum;
    }

    double total(const double *x) const {
        double sum = 0;
        for (std::size_t i = 0; i < used_; ++i) sum += x[i];
        return sum;
    }

    // Rows [from, to) tie, `in` of them wrong.
    void group(std::size_t from, std::size_t to, u64 in) {
        const u64 rows = to - from, good = rows - in;
        if (Areas) risks_of(from, to, in);
        const u64 credit1 = 2 * (from - (bad_ - in)) + good, credit0 = 2 * (out_.wrong - bad_) + in;
        if (rows_.credit2) {
            for (std::size_t i = from; i < to; ++i) {
                rows_.credit2[i] = static_cast<u32>(marks_[i] & kWrong ? credit1 : credit0);
            }
        }
        out_.credit2 += in * credit1;
        out_.wrong_squares.add_times(credit1, in);
        out_.right_squares.add_times(credit0, good);
        out_.later2.add_times(2 * out_.n - from - to, in);
        out_.tied_pairs += rows * (rows - 1);
        ++out_.blocks;
        bad_ -= in;
    }

    void risks_of(std::size_t from, std::size_t to, u64 in) {
        const double size = static_cast<double>(to - from), before = static_cast<double>(bad_ - in);
        const double each = static_cast<double>(in) / size;
        double later = 0, rest = 0;
        for (std::size_t k = to; k > from; --k) {
            const double inverse = 1.0 / static_cast<double>(k);
            const double risk = (before + static_cast<double>(k - from) * each) * inverse;
            later_ += inverse;
            later_risk_ += risk * inverse;
            later += later_;
            rest += risk - later_risk_;
            risk_ += fixed_.bits_of(risk);
        }
        later /= size;
        rest /= size;
        const double of_wrong = rest + later - shift_wrong_, of_right = rest - shift_right_;
        const double wrong = static_cast<double>(in), right = size - wrong;
        if (rows_.e) {
            for (std::size_t i = from; i < to; ++i) rows_.e[i] = marks_[i] & kWrong ? of_wrong : of_right;
        }
        out_.of_wrong.sum += wrong * of_wrong;
        out_.of_wrong.squares += wrong * of_wrong * of_wrong;
        out_.of_right.sum += right * of_right;
        out_.of_right.squares += right * of_right * of_right;
        out_.shares2 += wrong * later * later;
    }

    const u8 *marks_;
    SweptRows rows_;
    Sweep out_;
    double shift_wrong_ = 0, shift_right_ = 0;
    double later_ = 0, later_risk_ = 0;             // sums of 1/k and of R/k behind what was done
    Fixed fixed_;
    u64 risk_ = 0;                                  // sum of R, fixed
    // Sums of rows that tie with none, place by place of a chunk: nothing waits, and the order of addition is fixed.
    alignas(32) double shares_[kPart], sum1_[kPart], sum0_[kPart], square1_[kPart], square0_[kPart];
    std::size_t used_ = 0;                          // places of a chunk that there are
    u64 bad_ = 0;                                   // wrong rows before it
};

template <bool Areas> Sweep sweep_marks(const u8 *marks, std::size_t n, SweptRows rows = {}) {
    return Sweeper<Areas>(marks, n, rows).run();
}

}  // namespace uq
