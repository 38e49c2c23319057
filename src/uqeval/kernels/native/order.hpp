// Rows in order of a score, without a sort of the whole: buckets that fit the cache, then radix passes inside each.
//
//   1. a sample's histogram of 2^12 cells of a monotone map over its span; neighbouring cells pooled into buckets of about
//      kTarget rows (more where there would be too many buckets), whatever the distribution
//   2. scores sent to their buckets (pieces.hpp)                              1 read, 1 write of 8 bytes a row
//   3. in cache, bucket by bucket: words (code of 16 bits, place of 16 bits), two radix passes of 8 bits; rows that share
//      a code (one in eight) are settled by comparing doubles
//
// What comes out is a byte a row (is it wrong? does a new value start?) and, where somebody wants it, a payload in the
// same order: the row, or a number that it carries. Ties keep the order of rows; where errors are given, wrong rows come
// first.
#pragma once

#include "pieces.hpp"

namespace uq {

constexpr std::size_t kTarget = 8192;
constexpr std::size_t kBlock = 40000;  // rows that are put in order at once; more share their codes too often
constexpr std::size_t kStreams = 512;  // buckets that are filled at once; twice as many where rows carry nothing
constexpr u8 kWrong = 1, kNew = 2;  // bits of a mark

// Whether eight marks in a row start a value each.
inline bool all_new(const u8 *marks) {
    constexpr u64 kEach = 0x0101010101010101u * kNew;
    u64 eight;
    std::memcpy(&eight, marks, 8);
    return (eight & kEach) == kEach;
}

struct BlockSpace {  // of one thread
    Buffer a, b, repeat, code, rows, carried;
    void trim() {
        for (Buffer *buffer : {&a, &b, &repeat, &code, &rows, &carried}) buffer->trim();
    }
};

struct OrderSpace {
    Buffer rows, carried, ranks;
    std::vector<BlockSpace> blocks;
    BlockSpace *of_threads(int threads) {
        const std::size_t count = static_cast<std::size_t>(std::max(threads, 1));
        if (blocks.size() < count) blocks = std::vector<BlockSpace>(count);
        return blocks.data();
    }
    void trim() {
        for (Buffer *buffer : {&rows, &carried, &ranks}) buffer->trim();
        blocks.resize(std::min<std::size_t>(blocks.size(), 1));
        for (BlockSpace &block : blocks) block.trim();
    }
};

// ---- inside a bucket ----------------------------------------------------------------------------------------------

// Two stable radix passes over (code, place); the words end in s.b.
template <class Code> u32 *sort_codes(const double *x, std::size_t n, Code code_of, BlockSpace &s) {
    u16 *UQ_RESTRICT code = s.code.get<u16>(n);
    u32 *UQ_RESTRICT a = s.a.get<u32>(n), *UQ_RESTRICT b = s.b.get<u32>(n);
    u32 low[4][256] = {}, high[4][256] = {};
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
    for (std::size_t j = 0; j < n; ++j) a[low[0][code[j] & 255]++] = u32(code[j]) << 16 | static_cast<u32>(j);
    for (std::size_t j = 0; j < n; ++j) b[high[0][a[j] >> 24]++] = a[j];
    return b;
}

// One value (or one row); the first `wrong` rows are wrong.
template <class P>
void order_alike(std::size_t n, std::size_t wrong, const P *carried, u8 *marks, P *out) {
    for (std::size_t i = 0; i < n; ++i) marks[i] = i < wrong;
    marks[0] |= kNew;
    if (out) std::copy_n(carried, n, out);
}

// Up to kBlock rows, of which the first `wrong` are wrong: their marks, and what they carry in order (where out is given).
template <class P>
void order_block(const double *x, std::size_t n, std::size_t wrong, const P *carried, u8 *marks, P *UQ_RESTRICT out,
                 BlockSpace &s) {
    if (n == 0) return;
    const Span span = span_of(x, n);
    if (span.low == span.high) return order_alike(n, wrong, carried, marks, out);
    const auto arrange = [=](const u32 *b) {
        for (std::size_t i = 0; out && i < n; ++i) out[i] = carried[b[i] & 0xffff];
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

// More rows than a block takes (very many rows, a crowd in one cell, a sample that misled): counted, and scattered by a map
// of their own.
template <class P>
void order_crowd(const double *x, std::size_t n, std::size_t wrong, const P *carried, u8 *marks, P *out, BlockSpace &s) {
    if (n <= kBlock) return order_block(x, n, wrong, carried, marks, out, s);
    const Span span = span_of(x, n);
    if (span.low == span.high) return order_alike(n, wrong, carried, marks, out);
    const CellMap map = choose_map(x, n, span, 12);
    std::vector<u32> cell(n);
    with_cells(map, [&](auto cell_of) {
        for (std::size_t i = 0; i < n; ++i) cell[i] = cell_of(x[i]);
    });
    std::vector<u32> rows(map.cells, 0);
    for (std::size_t i = 0; i < n; ++i) ++rows[cell[i]];
    std::size_t buckets = 0;
    const std::vector<u16> of_cell = pool_cells(rows, kTarget, buckets);
    std::vector<u32> start(buckets + 1, 0), first(buckets, 0);
    for (u32 c = 0; c < map.cells; ++c) start[of_cell[c] + 1] += rows[c];
    for (std::size_t b = 0; b < buckets; ++b) start[b + 1] += start[b];
    std::vector<u32> place = start;
    Buffer sent, moved;
    double *to = sent.get<double>(n);
    P *along = out ? moved.get<P>(n) : nullptr;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t b = of_cell[cell[i]];
        first[b] += i < wrong;
        to[place[b]] = x[i];
        if (out) along[place[b]] = carried[i];
        ++place[b];
    }
    std::vector<u32>().swap(cell);
    for (std::size_t b = 0; b < buckets; ++b) {
        const std::size_t at = start[b];
        order_crowd<P>(to + at, start[b + 1] - at, first[b], out ? along + at : nullptr, marks + at, out ? out + at : nullptr, s);
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
        P *carried = out ? space.carried.get<P>(n) : nullptr;
        std::size_t wrong = 0, next[2];
        for (std::size_t i = 0; i < n; ++i) wrong += error ? error[i] : 0;
        next[1] = 0;
        next[0] = wrong;
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t to = next[error ? error[i] : 0]++;
            rows[to] = score[i];
            if (out) carried[to] = payload ? payload[i] : static_cast<P>(i);
        }
        return order_block<P>(rows, n, wrong, carried, marks, out, blocks[0]);
    }
    Values values;
    if (find_values(score, n, threads, space.ranks, values)) return order_values(values, error, payload, n, marks, out);
    std::vector<double> sample;
    sample.reserve(sample_size(n));
    take_sample(score, n, sample_size(n), [&](double x) { sample.push_back(x); });
    const Span span = span_of(sample.data(), sample.size());
    const CellMap map = choose_map(sample.data(), sample.size(), span, 12);
    const std::size_t target = std::max(kTarget, n / (out ? kStreams : 2 * kStreams));
    const Pieces cut = with_clamped_cells(map, span, [&](auto cell_of) {
        return send_to_buckets<P>(score, error, 1, payload, n, map.cells, cell_of, target, threads, space.rows,
                                  out ? &space.carried : nullptr);
    });
    const P *all = out ? space.carried.get<P>(n) : nullptr;
    std::vector<std::size_t> start(cut.buckets + 1, 0);
    for (std::size_t b = 0; b < cut.buckets; ++b) start[b + 1] = start[b] + cut.size(b);
    over_rows(cut.buckets, threads, [&](std::size_t t, std::size_t from, std::size_t to) {
        for (std::size_t b = from; b < to; ++b) {
            const std::size_t size = cut.size(b);
            double *rows = blocks[t].rows.get<double>(size);
            cut.collect(cut.rows, b, rows);
            P *carried = out ? blocks[t].carried.get<P>(size) : nullptr;
            if (out) cut.collect(all, b, carried);
            order_crowd<P>(rows, size, cut.size(b, 1), carried, marks + start[b], out ? out + start[b] : nullptr, blocks[t]);
        }
    });
}

}  // namespace uq
