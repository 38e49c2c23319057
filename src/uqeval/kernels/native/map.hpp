// Monotone maps from numbers to cells, and even buckets of cells.
#pragma once

#include "basics.hpp"

namespace uq {

// Which cell does x fall into? Both maps are monotone, so that cells are in the order of their rows; neither needs to
// tell numbers apart, since exact comparisons decide inside a cell.
// By line suits normal-like scores (logits, energies): their bits would waste 2000 exponents between -1 and 1.
// By bits suits scores that crowd at 0 over many orders of magnitude (entropies, 1 - p), and infinite ones.
struct LinearCell {
    double low, scale;
    u32 operator()(double x) const {
        return static_cast<u32>(static_cast<std::int32_t>((x - low) * scale));  // 32 bits: AVX2 has this one
    }
};
struct KeyCell {
    u64 least;
    int shift;
    u32 operator()(double x) const { return static_cast<u32>((key_of(x) - least) >> shift); }
};
struct CellMap {
    bool linear = false;
    double low = 0, scale = 0;
    u64 least = 0;
    int shift = 0;
    u32 cells = 1;

    LinearCell by_line() const { return {low, scale}; }
    KeyCell by_bits() const { return {least, shift}; }
};

struct Span {
    double low, high;
};

inline Span span_of(const double *x, std::size_t n) {
    constexpr std::size_t kChains = 16;  // a single one would wait for each comparison
    double low[kChains], high[kChains];
    for (std::size_t k = 0; k < kChains; ++k) low[k] = high[k] = x[0];
    std::size_t i = 0;
    for (; i + kChains <= n; i += kChains) {
        for (std::size_t k = 0; k < kChains; ++k) {
            low[k] = x[i + k] < low[k] ? x[i + k] : low[k];
            high[k] = x[i + k] > high[k] ? x[i + k] : high[k];
        }
    }
    for (; i < n; ++i) {
        low[0] = std::min(low[0], x[i]);
        high[0] = std::max(high[0], x[i]);
    }
    return {*std::min_element(low, low + kChains), *std::max_element(high, high + kChains)};
}

inline Span span_of(const double *x, std::size_t n, int threads) {
    std::vector<Span> spans(static_cast<std::size_t>(std::max(threads, 1)), Span{x[0], x[0]});
    over_rows(n, threads, [&](std::size_t t, std::size_t from, std::size_t to) {
        if (to > from) spans[t] = span_of(x + from, to - from);
    });
    Span all = spans[0];
    for (const Span &part : spans) all = {std::min(all.low, part.low), std::max(all.high, part.high)};
    return all;
}

// At most 2^bits + 1 cells over the span, of the kind that spreads a sample of x more evenly.
inline CellMap choose_map(const double *x, std::size_t n, Span span, int bits, std::size_t sample = 1024) {
    CellMap map;
    map.low = span.low;
    map.least = key_of(span.low);
    const u64 width = key_of(span.high) - map.least;
    map.shift = std::max(0, bit_width(width) - bits);
    map.cells = static_cast<u32>(width >> map.shift) + 1;
    const double length = span.high - span.low;
    if (!(length > 0) || !std::isfinite(length)) return map;
    map.scale = std::ldexp(1.0, bits) / length;
    if (!std::isnormal(map.scale)) return map;
    constexpr int kBits = 8;
    const int down = std::max(0, bits - kBits);
    u32 of_line[(1 << kBits) + 2] = {}, of_bits[(1 << kBits) + 2] = {};
    const std::size_t step = std::max<std::size_t>(1, n / sample);
    for (std::size_t i = 0; i < n; i += step) {
        ++of_line[map.by_line()(x[i]) >> down];
        ++of_bits[map.by_bits()(x[i]) >> down];
    }
    u64 line = 0, bit = 0;
    for (u32 c : of_line) line += u64(c) * c;
    for (u32 c : of_bits) bit += u64(c) * c;
    map.linear = line < bit;
    if (map.linear) map.cells = map.by_line()(span.high) + 1;
    return map;
}

// The same for what lies in the cells from `first` to before `past` alone: at most 2^bits + 2 cells, where they are `exact`.
inline CellMap zoom(const CellMap &map, u32 first, u32 past, int bits) {
    CellMap near = map;
    if (map.linear) {  // what rounding takes below the first cell comes back to it: conversion cuts towards 0
        near.low = map.low + first / map.scale;
        near.scale = map.scale * std::ldexp(1.0, bits) / (past - first);
        near.cells = (u32(1) << bits) + 2;
        return near;
    }
    near.least = map.least + (u64(first) << map.shift);
    const u64 width = (u64(past - first) << map.shift) - 1;
    near.shift = std::max(0, bit_width(width) - bits);
    near.cells = static_cast<u32>(width >> near.shift) + 1;
    return near;
}

// Whether a map that `zoom` made keeps to its cells: its start is rounded, which must be a small part of one.
inline bool exact(const CellMap &near) {
    if (!near.linear) return true;
    const double high = near.low + near.cells / near.scale;
    return near.scale * 0x1p-50 * std::max(std::abs(near.low), std::abs(high)) <= 0.5;
}

// Calls f with the map's cell function, so that each loop is compiled for one kind.
template <class F> auto with_cells(const CellMap &map, F f) {
    return map.linear ? f(map.by_line()) : f(map.by_bits());
}

// The same where the map is that of a sample: numbers outside its span fall into the first or the last cell.
template <class Cell> struct Clamped {
    Cell cell;
    double low, high;
    u32 operator()(double x) const {
        const double from = x < low ? low : x;
        return cell(from > high ? high : from);
    }
};
template <class F> auto with_clamped_cells(const CellMap &map, Span span, F f) {
    return with_cells(map, [&](auto cell) { return f(Clamped<decltype(cell)>{cell, span.low, span.high}); });
}

// One of each n / size rows, so that no period of the rows misleads.
template <class Take> void take_sample(const double *x, std::size_t n, std::size_t size, Take take) {
    const std::size_t step = n / size;
    u32 random = 1;
    for (std::size_t i = 0; i < size; ++i) {
        random = random * 1664525u + 1013904223u;
        take(x[i * step + (u64(random) * step >> 32)]);
    }
}
inline std::size_t sample_size(std::size_t n) { return std::min(n, std::max<std::size_t>(8192, n / 256)); }

// Neighbouring cells pooled into buckets of at most `target` rows, where a single cell does not exceed it.
inline std::vector<u16> pool_cells(const std::vector<u32> &rows, std::size_t target, std::size_t &buckets) {
    std::vector<u16> of_cell(rows.size());
    std::size_t now = 0, bucket = 0;
    for (std::size_t c = 0; c < rows.size(); ++c) {
        if (now && now + rows[c] > target && bucket < 65000) {
            ++bucket;
            now = 0;
        }
        of_cell[c] = static_cast<u16>(bucket);
        now += rows[c];
    }
    buckets = bucket + 1;
    return of_cell;
}

}  // namespace uq
