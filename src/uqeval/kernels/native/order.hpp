// Rows in order of a score, without a sort of the whole: buckets that fit the cache, then radix passes inside each.
//
//   1. least and greatest score                                               1 read
//   2. histogram of 2^12 cells of a monotone map                              1 read
//   3. neighbouring cells pooled into buckets of <= kTarget rows, whatever the distribution
//   4. scores scattered to their buckets                                      1 read, 1 write of 8 bytes a row
//   5. in cache, bucket by bucket: words (code of 16 bits, place of 16 bits), two radix passes of 8 bits; rows that share
//      a code (one in eight) are settled by comparing doubles
//
// What comes out is a byte a row (is it wrong? does a new value start?) and, where somebody wants it, a payload in the
// same order: the row, or a number that it carries. Ties keep the order of rows; where errors are given, wrong rows come
// first. Scatters go in loops of their own: places, a request for their memory (at 1e7 rows an Intel CPU is twice as fast
// with it), writes. In one loop the CPU mispredicts which load needs which store, and takes 1.5 times as long.
#pragma once

#include "values.hpp"

namespace uq {

constexpr std::size_t kTarget = 8192;
constexpr std::size_t kBlock = 40000;  // rows that are put in order at once; more share their codes too often
constexpr std::size_t kNear = 200000;  // rows that the cache holds anyway
constexpr std::size_t kStreams = 384;  // buckets that are filled at once
constexpr u8 kWrong = 1, kNew = 2;  // bits of a mark

struct BlockSpace {  // of one thread
    Buffer a, b, repeat, code, rows, kept, error;
    void trim() {
        for (Buffer *buffer : {&a, &b, &repeat, &code, &rows, &kept, &error}) buffer->trim();
    }
};

struct OrderSpace {
    Buffer rows, ranks;
    std::vector<BlockSpace> blocks;
    BlockSpace *of_threads(int threads) {
        const std::size_t count = static_cast<std::size_t>(std::max(threads, 1));
        if (blocks.size() < count) blocks = std::vector<BlockSpace>(count);
        return blocks.data();
    }
    void trim() {
        rows.trim();
        ranks.trim();
        blocks.resize(std::min<std::size_t>(blocks.size(), 1));
        for (BlockSpace &block : blocks) block.trim();
    }
};

// ---- buckets ------------------------------------------------------------------------------------------------------

// Where each bucket starts (one more than there are), and how many of its rows are of the class that comes first.
struct Partition {
    std::vector<u32> start, first;
    std::size_t buckets() const { return first.size(); }
};

// Scatters scores to buckets; in a bucket rows with error == mark come first, otherwise in the order they had. `payload`
// goes along into `carried`; a null payload means the row itself, a null `carried` nothing. error may be null.
template <class P, class Cell>
Partition scatter(const double *score, const u8 *error, u8 mark, const P *payload, std::size_t n, u32 cells, Cell cell_of,
                  std::size_t target, int threads, double *rows, P *carried) {
    const std::size_t parts = static_cast<std::size_t>(std::max(threads, 1));
    std::vector<std::vector<u32>> counts(parts);
    over_rows(n, threads, [&](std::size_t t, std::size_t from, std::size_t to) {
        std::vector<u32> &own = counts[t];
        own.assign(2 * std::size_t(cells), 0);
        u32 cell[kChunk];
        for (; from < to; from += kChunk) {
            const std::size_t size = std::min(kChunk, to - from);
            const double *x = score + from;
            for (std::size_t i = 0; i < size; ++i) cell[i] = 2 * cell_of(x[i]);
            if (error) {
                for (std::size_t i = 0; i < size; ++i) cell[i] += error[from + i] == mark;
            }
            for (std::size_t i = 0; i < size; ++i) ++own[cell[i]];
        }
    });
    std::vector<u32> all(cells, 0);
    for (const auto &own : counts) {
        for (u32 c = 0; c < cells; ++c) all[c] += own[2 * c] + own[2 * c + 1];
    }
    std::size_t buckets = 0;
    const std::vector<u16> of_cell = pool_cells(all, target, buckets);
    std::vector<std::vector<u32>> place(parts, std::vector<u32>(2 * buckets, 0));
    for (std::size_t t = 0; t < parts; ++t) {
        for (u32 c = 0; c < cells && !counts[t].empty(); ++c) {
            place[t][2 * of_cell[c]] += counts[t][2 * c];
            place[t][2 * of_cell[c] + 1] += counts[t][2 * c + 1];
        }
    }
    Partition found;
    found.start.resize(buckets + 1);
    found.first.resize(buckets);
    u32 next = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
        found.start[b] = next;
        for (const std::size_t cls : {1, 0}) {
            for (std::size_t t = 0; t < parts; ++t) next += std::exchange(place[t][2 * b + cls], next);
            if (cls) found.first[b] = next - found.start[b];
        }
    }
    found.start[buckets] = next;
    over_rows(n, threads, [=, &place, &of_cell](std::size_t t, std::size_t from, std::size_t to) {
        u32 *UQ_RESTRICT own = place[t].data();
        const u16 *UQ_RESTRICT bucket = of_cell.data();
        u32 at[kChunk];
        for (; from < to; from += kChunk) {
            const std::size_t size = std::min(kChunk, to - from);
            const double *x = score + from;
            for (std::size_t i = 0; i < size; ++i) at[i] = cell_of(x[i]);
            const auto find_places = [&](auto far, auto second) {  // each kind has a loop of its own
                for (std::size_t i = 0; i < size; ++i) {
                    at[i] = own[2 * u32(bucket[at[i]]) + second(from + i)]++;
                    if (far.value) fetch(rows + at[i]);
                }
                for (std::size_t i = 0; far.value && carried && i < size; ++i) fetch(carried + at[i]);
            };
            const auto by_error = [=](std::size_t i) { return u32(error[i] == mark); };
            const auto alike = [](std::size_t) { return u32(0); };
            if (n > kNear) {
                error ? find_places(std::true_type(), by_error) : find_places(std::true_type(), alike);
            } else {
                error ? find_places(std::false_type(), by_error) : find_places(std::false_type(), alike);
            }
            for (std::size_t i = 0; i < size; ++i) rows[at[i]] = x[i];
            if (!carried) continue;
            if (payload) {
                for (std::size_t i = 0; i < size; ++i) carried[at[i]] = payload[from + i];
            } else {
                for (std::size_t i = 0; i < size; ++i) carried[at[i]] = static_cast<P>(from + i);
            }
        }
    });
    return found;
}

// ---- inside a bucket ----------------------------------------------------------------------------------------------

// Two stable radix passes over (code, place); the words end in s.b.
template <class Code> u32 *sort_codes(const double *x, std::size_t n, Code code_of, BlockSpace &s) {
    u16 *UQ_RESTRICT code = s.code.get<u16>(n);
    u32 *UQ_RESTRICT a = s.a.get<u32>(n), *UQ_RESTRICT b = s.b.get<u32>(n);
    u32 low[4][256] = {}, high[4][256] = {}, to[kChunk];
    for (std::size_t i = 0; i < n; ++i) code[i] = static_cast<u16>(code_of(x[i]));
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (std::size_t k = 0; k < 4; ++k) {  // a table each, or neighbours would wait for each other
            ++low[k][code[i + k] & 255];
            ++high[k][code[i + k] >> 8];
        }
    }
    for (; i < n; ++i) {
        ++low[0][code[i] & 255];
        ++high[0][code[i] >> 8];
    }
    u32 sum_low = 0, sum_high = 0;
    for (std::size_t k = 0; k < 256; ++k) {
        const u32 of_low = low[0][k] + low[1][k] + low[2][k] + low[3][k];
        const u32 of_high = high[0][k] + high[1][k] + high[2][k] + high[3][k];
        low[0][k] = sum_low;
        high[0][k] = sum_high;
        sum_low += of_low;
        sum_high += of_high;
    }
#ifdef UQ_FUSED
    for (std::size_t j = 0; j < n; ++j) a[low[0][code[j] & 255]++] = u32(code[j]) << 16 | static_cast<u32>(j);
    for (std::size_t j = 0; j < n; ++j) b[high[0][a[j] >> 24]++] = a[j];
    static_cast<void>(to);
#else
    for (std::size_t from = 0; from < n; from += kChunk) {
        const std::size_t size = std::min(kChunk, n - from);
        for (std::size_t j = 0; j < size; ++j) to[j] = low[0][code[from + j] & 255]++;
        for (std::size_t j = 0; j < size; ++j) a[to[j]] = u32(code[from + j]) << 16 | static_cast<u32>(from + j);
    }
    for (std::size_t from = 0; from < n; from += kChunk) {
        const std::size_t size = std::min(kChunk, n - from);
        for (std::size_t j = 0; j < size; ++j) to[j] = high[0][a[from + j] >> 24]++;
        for (std::size_t j = 0; j < size; ++j) b[to[j]] = a[from + j];
    }
#endif
    return b;
}

// Up to kBlock rows, of which the first `wrong` are wrong: their marks; and what they carry (or null) is put in order.
template <class P>
void order_block(const double *x, std::size_t n, std::size_t wrong, u8 *marks, P *carried, BlockSpace &s) {
    if (n == 0) return;
    const Span span = span_of(x, n);
    if (span.low == span.high) {  // one value (or one row)
        for (std::size_t i = 0; i < n; ++i) marks[i] = i < wrong;
        marks[0] |= kNew;
        return;
    }
    const auto arrange = [&](const u32 *b) {
        if (!carried) return;
        P *UQ_RESTRICT former = s.kept.get<P>(n), *UQ_RESTRICT out = carried;
        std::memcpy(former, carried, n * sizeof *former);
        for (std::size_t i = 0; i < n; ++i) out[i] = former[b[i] & 0xffff];
    };
    const u32 w = static_cast<u32>(wrong);
    if (n <= 32) {
        u32 b[32];
        for (std::size_t i = 0; i < n; ++i) {
            std::size_t j = i;
            for (; j > 0 && x[i] < x[b[j - 1]]; --j) b[j] = b[j - 1];
            b[j] = static_cast<u32>(i);
        }
        for (std::size_t i = 0; i < n; ++i) {
            marks[i] = static_cast<u8>((b[i] < w ? kWrong : 0) | (i == 0 || x[b[i]] != x[b[i - 1]] ? kNew : 0));
        }
        return arrange(b);
    }
    CellMap map = choose_map(x, n, span, 16, 128);
    if (map.linear) map.scale *= 65535.0 / 65536.0;  // codes of 16 bits
    u32 *b = with_cells(map, [&](auto code_of) { return sort_codes(x, n, code_of, s); });
    u32 *repeat = s.repeat.get<u32>(n);
    for (std::size_t i = 0; i < n; ++i) marks[i] = static_cast<u8>(((b[i] & 0xffff) < w) | kNew);
    std::size_t repeats = 0;
    for (std::size_t i = 1; i < n; ++i) {
        repeat[repeats] = static_cast<u32>(i);
        repeats += (b[i] ^ b[i - 1]) < 65536;
    }
    const auto value = [&](std::size_t i) { return x[b[i] & 0xffff]; };
    for (std::size_t k = 0; k < repeats;) {  // a run of rows that share their code
        const std::size_t from = repeat[k] - 1;
        std::size_t to = from + 2;
        for (++k; k < repeats && repeat[k] == to; ++k) ++to;
        if (to - from == 2) {
            if (value(from + 1) < value(from)) {
                std::swap(b[from], b[from + 1]);
                std::swap(marks[from], marks[from + 1]);
            } else if (value(from + 1) == value(from)) {
                marks[from + 1] &= static_cast<u8>(~kNew);
            }
            continue;
        }
        if (to - from <= 16) {
            for (std::size_t i = from + 1; i < to; ++i) {
                const u32 word = b[i];
                const double v = x[word & 0xffff];
                std::size_t j = i;
                for (; j > from && v < value(j - 1); --j) b[j] = b[j - 1];
                b[j] = word;
            }
        } else {
            bool same = true;
            for (std::size_t i = from + 1; i < to && same; ++i) same = value(i) == value(from);
            if (!same) {  // places ascend, so they keep ties in order
                std::sort(b + from, b + to, [&](u32 p, u32 q) {
                    const double left = x[p & 0xffff], right = x[q & 0xffff];
                    return left < right || (left == right && (p & 0xffff) < (q & 0xffff));
                });
            }
        }
        for (std::size_t i = from; i < to; ++i) {
            const bool fresh = i == from || value(i) != value(i - 1);
            marks[i] = static_cast<u8>(((b[i] & 0xffff) < w ? kWrong : 0) | (fresh ? kNew : 0));
        }
    }
    arrange(b);
}

// More rows than a block takes: scattered once more, by a map of their own.
template <class P>
void order_heap(const double *x, std::size_t n, std::size_t wrong, u8 *marks, P *carried, BlockSpace &s, int depth = 0) {
    if (n <= kBlock) return order_block(x, n, wrong, marks, carried, s);
    const Span span = span_of(x, n);
    if (span.low == span.high) {
        for (std::size_t i = 0; i < n; ++i) marks[i] = i < wrong;
        marks[0] |= kNew;
        return;
    }
    Buffer own;  // deeper down: what the thread keeps is in use
    double *scattered = (depth ? own : s.rows).get<double>(n);
    P *moved = carried ? s.kept.get<P>(n) : nullptr;
    u8 *error = wrong ? s.error.get<u8>(n) : nullptr;
    for (std::size_t i = 0; wrong && i < n; ++i) error[i] = i < wrong;
    const CellMap map = choose_map(x, n, span, 12);
    const Partition parts = with_cells(map, [&](auto cell_of) {
        return scatter<P>(x, error, 1, carried, n, map.cells, cell_of, kTarget, 1, scattered, moved);
    });
    if (carried) std::memcpy(carried, moved, n * sizeof *moved);
    for (std::size_t b = 0; b < parts.buckets(); ++b) {
        const std::size_t start = parts.start[b], size = parts.start[b + 1] - start;
        order_heap<P>(scattered + start, size, parts.first[b], marks + start, carried ? carried + start : nullptr, s,
                      depth + 1);
    }
}

// ---- all rows -----------------------------------------------------------------------------------------------------

// Rows of few values: their marks follow from how many there are of each, and a payload has a place for each.
template <class P>
void order_values(const Values &values, const u8 *error, const P *payload, std::size_t n, u8 *marks, P *out) {
    const std::vector<ValueRows> rows = rows_of_values(values, error, n);
    std::vector<u32> place(2 * values.count());
    std::size_t at = 0;
    for (std::size_t v = 0; v < rows.size(); ++v) {
        place[2 * v + 1] = static_cast<u32>(at);
        place[2 * v] = static_cast<u32>(at + rows[v].marked);
        std::fill_n(marks + at, rows[v].marked, kWrong);
        std::fill_n(marks + at + rows[v].marked, rows[v].others, u8(0));
        marks[at] |= kNew;
        at += rows[v].rows();
    }
    if (!out) return;
    u32 to[kChunk];
    for (std::size_t from = 0; from < n; from += kChunk) {
        const std::size_t size = std::min(kChunk, n - from);
        for (std::size_t i = 0; i < size; ++i) {
            to[i] = place[2 * values.rank[from + i] + (error ? error[from + i] : 0)]++;
            fetch(out + to[i]);
        }
        for (std::size_t i = 0; i < size; ++i) out[to[i]] = payload ? payload[from + i] : static_cast<P>(from + i);
    }
}

// marks[k] of the row at place k of the score's order; out[k] its payload (its row if payload is null), where out is
// given. error may be null.
template <class P>
void order_rows(const double *score, const u8 *error, const P *payload, std::size_t n, u8 *marks, P *out,
                OrderSpace &space, int threads = 1) {
    if (n == 0) return;
    if (n < 65536) threads = 1;
    BlockSpace *blocks = space.of_threads(threads);
    if (n <= kTarget) {  // a single bucket
        double *rows = space.rows.get<double>(n);
        std::size_t wrong = 0, next[2];
        for (std::size_t i = 0; i < n; ++i) wrong += error ? error[i] : 0;
        next[1] = 0;
        next[0] = wrong;
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t to = next[error ? error[i] : 0]++;
            rows[to] = score[i];
            if (out) out[to] = payload ? payload[i] : static_cast<P>(i);
        }
        return order_block<P>(rows, n, wrong, marks, out, blocks[0]);
    }
    Values values;
    if (find_values(score, n, threads, space.ranks, values)) return order_values(values, error, payload, n, marks, out);
    const Span span = span_of(score, n, threads);
    const CellMap map = choose_map(score, n, span, 12);
    const std::size_t target = std::max(kTarget, n / kStreams);
    double *rows = space.rows.get<double>(n);
    const Partition parts = with_cells(map, [&](auto cell_of) {
        return scatter<P>(score, error, 1, payload, n, map.cells, cell_of, target, threads, rows, out);
    });
    over_rows(parts.buckets(), threads, [&](std::size_t t, std::size_t from, std::size_t to) {
        for (std::size_t b = from; b < to; ++b) {
            const std::size_t start = parts.start[b], size = parts.start[b + 1] - start;
            order_heap<P>(rows + start, size, parts.first[b], marks + start, out ? out + start : nullptr, blocks[t]);
        }
    });
}

}  // namespace uq
