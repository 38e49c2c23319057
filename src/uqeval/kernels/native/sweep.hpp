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
    for (int j = 0; j < errors; ++j) {
        sum += fixed.bits_of(static_cast<double>(j + 1) / static_cast<double>(right + j + 1));
    }
    return n ? fixed.value(sum, wrong) / static_cast<double>(n) : 0.0;
}

inline u64 count_wrong(const u8 *marks, std::size_t n) {
    u64 wrong = 0;
    for (std::size_t i = 0; i < n;) {
        u32 part = 0;
        for (const std::size_t stop = std::min(n, i + (std::size_t(1) << 20)); i < stop; ++i) part += marks[i] & kWrong;
        wrong += part;
    }
    return wrong;
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
        out_.wrong = count_wrong(marks, n);
        out_.rate = n ? static_cast<double>(out_.wrong) / static_cast<double>(n) : 0.0;
        out_.slope = out_.rate < 1 ? -std::log1p(-out_.rate) : 0.0;
        out_.best = Areas ? oracle_aurc(n, out_.wrong) : 0.0;
        shift_wrong_ = out_.best + out_.slope * (1 - out_.rate);
        shift_right_ = out_.best - out_.slope * out_.rate;
        bad_ = out_.wrong;
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
        out_.shares2 += total(sums_.shares);
        out_.of_wrong.sum += total(sums_.sum1);
        out_.of_wrong.squares += total(sums_.square1);
        out_.of_right.sum += total(sums_.sum0);
        out_.of_right.squares += total(sums_.square0);
        for (const u64 risk : sums_.risk) risk_ += risk;
        out_.aurc = out_.blocks <= 1 || out_.wrong == out_.n ? out_.rate : fixed_.value(risk_, out_.n) / static_cast<double>(out_.n);
        out_.harmonic = later_;
        return out_;
    }

  private:
    static constexpr std::size_t kPart = 256;

    using i16 = std::int16_t;

    // Of the rows of a chunk: all bits where one is wrong, and how many are up to there.
    struct Wrong {
        alignas(32) i16 mask[kPart], count[kPart];
    };

    UQ_WIDE static void find_wrong(const u8 *UQ_RESTRICT marks, std::size_t size, Wrong &wrong) {
        i16 *UQ_RESTRICT mask = wrong.mask, *UQ_RESTRICT count = wrong.count;
        for (std::size_t i = 0; i < size; ++i) mask[i] = static_cast<i16>(-(marks[i] & kWrong));
        i16 sum = 0;
        std::size_t i = 0;
        for (; i + 8 <= size; i += 8) {  // a product with ones adds up eight bytes from each one down
            u64 eight;
            std::memcpy(&eight, marks + i, 8);
            eight = (eight & 0x0101010101010101u * kWrong) * 0x0101010101010101u;
            u8 until[8];
            std::memcpy(until, &eight, 8);
            for (std::size_t k = 0; k < 8; ++k) count[i + k] = static_cast<i16>(sum + until[k]);
            sum = static_cast<i16>(sum + (eight >> 56));
        }
        for (; i < size; ++i) count[i] = sum = static_cast<i16>(sum - mask[i]);
    }

    // Rows [from, from + size) that tie with none. A wrong row has right + i - count right rows below and behind - 2 i rows
    // behind (doubled, half of itself), a right row above - count wrong ones above. Sums of what differs are small; squares
    // of the whole follow from them.
    UQ_WIDE void credits(const Wrong &rows, std::size_t from, std::size_t size, u64 before) {
        const i16 *UQ_RESTRICT mask = rows.mask, *UQ_RESTRICT count = rows.count, *UQ_RESTRICT place = kPlaces.of;
        int apart = 0, apart2 = 0, own = 0, own2 = 0, ahead = 0, ahead2 = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const i16 gap = static_cast<i16>((place[i] - count[i]) & mask[i]), at = static_cast<i16>(place[i] & mask[i]);
            const i16 seen = static_cast<i16>(count[i] & ~mask[i]);
            apart += gap;
            apart2 += gap * gap;
            own += at;
            own2 += at * at;
            ahead += seen;
            ahead2 += seen * seen;
        }
        const u64 wrong = static_cast<u64>(count[size - 1]), right = from + 1 - before, above = out_.wrong - before;
        add_squares(out_.wrong_squares, right, 4 * wrong, 4 * apart, 4 * apart2);
        add_squares(out_.right_squares, above, 4 * (size - wrong), -4 * ahead, 4 * ahead2);
        if (Areas) add_squares(out_.later2, 2 * (out_.n - from) - 1, wrong, -2 * own, 4 * own2);
        out_.credit2 += 2 * (wrong * right + static_cast<u64>(apart));
        for (std::size_t i = 0; rows_.credit2 && i < size; ++i) {
            const u64 credit = mask[i] ? right + i - static_cast<u64>(count[i]) : above - static_cast<u64>(count[i]);
            rows_.credit2[from + i] = static_cast<u32>(2 * credit);
        }
    }

    // The sum of (base + x)^2 over `times` numbers x with the given sum and squares.
    static void add_squares(Wide &sum, u64 base, u64 times, i64 first, i64 second) {
        sum.add_times(base, times);
        const i64 rest = 2 * first * static_cast<i64>(base) + second;
        rest >= 0 ? sum.add(static_cast<u64>(rest)) : sum.subtract(static_cast<u64>(-rest));
    }

    struct Places {
        alignas(32) i16 of[kPart] = {};
        constexpr Places() {
            for (std::size_t i = 0; i < kPart; ++i) of[i] = static_cast<i16>(i);
        }
    };
    static constexpr Places kPlaces{};

    // Rows [from, to), none tied.
    UQ_WIDE void chunk(std::size_t from, std::size_t to) {
        const std::size_t size = to - from;
        alignas(32) double risk[kPart], later[kPart], rest[kPart];
        Wrong rows;
        find_wrong(marks_ + from, size, rows);
        const u64 before = bad_ - static_cast<u64>(rows.count[size - 1]);
        credits(rows, from, size, before);
        out_.blocks += size;
        bad_ = before;
        if (!Areas) return;
        alignas(32) double wrong[kPart];
        const int first = static_cast<int>(from + 1), bad = static_cast<int>(before);
        for (std::size_t i = 0; i < size; ++i) {
            const double inverse = 1.0 / static_cast<double>(first + static_cast<int>(i));
            wrong[i] = -rows.mask[i];
            risk[i] = static_cast<double>(bad + rows.count[i]) * inverse;
            later[i] = inverse;
            rest[i] = risk[i] * inverse;
        }
        add_up(later, rest, size);
        add_influences(risk, later, rest, wrong, size);
        if (!rows_.e) return;
        for (std::size_t i = 0; i < size; ++i) {
            const double base = risk[i] - rest[i];
            rows_.e[from + i] = wrong[i] != 0.0 ? base + later[i] - shift_wrong_ : base - shift_right_;
        }
    }

    // Sums over rows that tie with none. Row i of a chunk is in lane i % kLanes, so that none has to wait for the one
    // before, and the order of addition is fixed.
    static constexpr std::size_t kLanes = 8;
    struct LaneSums {
        alignas(32) double shares[kLanes] = {}, sum1[kLanes] = {}, sum0[kLanes] = {}, square1[kLanes] = {}, square0[kLanes] = {};
        alignas(32) u64 risk[kLanes] = {};
    };

    UQ_WIDE void add_influences(const double *UQ_RESTRICT risk, const double *UQ_RESTRICT later,
                                const double *UQ_RESTRICT rest, const double *UQ_RESTRICT wrong, std::size_t size) {
        LaneSums sums;  // of the chunk alone: few additions lose few digits
        const double shift_wrong = shift_wrong_, shift_right = shift_right_;
        const Fixed fixed = fixed_;
        const auto add = [&](std::size_t i, std::size_t lane) {
            const double base = risk[i] - rest[i], share = later[i] * wrong[i];
            const double one = (base + later[i] - shift_wrong) * wrong[i], zero = (base - shift_right) * (1.0 - wrong[i]);
            sums.risk[lane] += fixed.bits_of(risk[i]);
            sums.shares[lane] += share * share;
            sums.sum1[lane] += one;
            sums.sum0[lane] += zero;
            sums.square1[lane] += one * one;
            sums.square0[lane] += zero * zero;
        };
        std::size_t i = 0;
        for (; i + kLanes <= size; i += kLanes) {
            for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
        }
        for (std::size_t lane = 0; i < size; ++i, ++lane) add(i, lane);
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            sums_.risk[lane] += sums.risk[lane];
            sums_.shares[lane] += sums.shares[lane];
            sums_.sum1[lane] += sums.sum1[lane];
            sums_.sum0[lane] += sums.sum0[lane];
            sums_.square1[lane] += sums.square1[lane];
            sums_.square0[lane] += sums.square0[lane];
        }
    }

    // Sums from the end, four at a time and two arrays at once: additions that need not wait for each other.
    void add_up(double *UQ_RESTRICT later, double *UQ_RESTRICT rest, std::size_t size) {
        const auto add = [](double *x, double sum) {
            const double c = x[2] + x[3], b = x[1] + c, a = x[0] + b;
            x[3] += sum;
            x[2] = c + sum;
            x[1] = b + sum;
            return x[0] = a + sum;
        };
        double sum = later_, sum_risk = later_risk_;
        std::size_t i = size;
        for (; i % 4; --i) {
            later[i - 1] = sum += later[i - 1];
            rest[i - 1] = sum_risk += rest[i - 1];
        }
        for (; i; i -= 4) {
            sum = add(later + i - 4, sum);
            sum_risk = add(rest + i - 4, sum_risk);
        }
        later_ = sum;
        later_risk_ = sum_risk;
    }

    static double total(const double *x) {
        double sum = 0;
        for (std::size_t i = 0; i < kLanes; ++i) sum += x[i];
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
    LaneSums sums_;
    u64 bad_ = 0;                                   // wrong rows before it
};

template <bool Areas> Sweep sweep_marks(const u8 *marks, std::size_t n, SweptRows rows = {}) {
    return Sweeper<Areas>(marks, n, rows).run();
}

}  // namespace uq
