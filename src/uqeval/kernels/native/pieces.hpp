// Rows sent to buckets without counting them first: a bucket is a list of pieces, which are taken one after another.
//
// A sample says which cells of a monotone map make a bucket; one that misleads makes buckets uneven, never wrong. All pieces
// that are open lie close together, since each is the next one that nobody has: a CPU keeps few pages in mind for stores.
// Writes go in a loop of their own, behind places and the requests for their memory (at 1e7 rows an Intel CPU is 1.5 times
// as fast with them). In one loop the CPU mispredicts which load needs which store, and takes 1.5 times as long.
#pragma once

#include "values.hpp"

namespace uq {

constexpr std::size_t kNear = 200000;  // rows that the cache holds anyway

// A bucket has two lists of pieces for each thread: of rows with error == mark, and of the others.
struct Pieces {
    std::size_t buckets = 0, threads = 0;
    int shift = 0;                 // 2^shift rows in a piece
    std::vector<u32> count, head;  // of each list: its rows, and its first piece
    std::vector<u32> next;         // of each piece
    std::vector<u32> cell;         // where each bucket starts among the cells, and how many there are
    const double *rows = nullptr;

    std::size_t size(std::size_t bucket, std::size_t cls) const {
        std::size_t sum = 0;
        for (std::size_t t = 0; t < threads; ++t) sum += count[2 * (t * buckets + bucket) + cls];
        return sum;
    }

    std::size_t size(std::size_t bucket) const { return size(bucket, 0) + size(bucket, 1); }

    // Calls piece(rows, how many) in the order that rows had; `all` are the rows of all pieces.
    template <class T, class Piece> void each(const T *all, std::size_t bucket, std::size_t cls, Piece piece) const {
        for (std::size_t t = 0; t < threads; ++t) {
            const std::size_t list = 2 * (t * buckets + bucket) + cls, whole = std::size_t(1) << shift;
            std::size_t left = count[list];
            for (u32 at = head[list]; left; at = next[at]) {
                const std::size_t here = std::min(left, whole);
                piece(all + (std::size_t(at) << shift), here);
                left -= here;
            }
        }
    }

    // The rows of a bucket side by side, of one class or of both: those with error == mark come first.
    template <class T> T *collect(const T *all, std::size_t bucket, std::size_t cls, T *to) const {
        each(all, bucket, cls, [&](const T *rows, std::size_t size) { to = std::copy_n(rows, size, to); });
        return to;
    }
    template <class T> void collect(const T *all, std::size_t bucket, T *to) const {
        collect(all, bucket, 0, collect(all, bucket, 1, to));
    }
};

// A bucket for each cell, of about `target` rows.
template <class Cell>
std::vector<u16> choose_buckets(const double *score, std::size_t n, u32 cells, Cell cell_of, std::size_t target,
                                std::size_t &buckets) {
    const std::size_t sample = sample_size(n);
    std::vector<u32> rows(cells, 0);
    take_sample(score, n, sample, [&](double x) { ++rows[cell_of(x)]; });
    return pool_cells(rows, std::max<std::size_t>(1, target * sample / n), buckets);
}

// Scores go to the pieces in `space`. What rows carry goes along to those in `carry`, where there is one: payload, or the
// row where that is null. error may be null.
template <class P, class Cell>
Pieces send_to_buckets(const double *score, const u8 *error, u8 mark, const P *payload, std::size_t n, u32 cells,
                       Cell cell_of, std::size_t target, int threads, Buffer &space, Buffer *carry) {
    Pieces found;
    const std::size_t parts = found.threads = static_cast<std::size_t>(std::max(threads, 1));
    const std::vector<u16> of_cell = choose_buckets(score, n, cells, cell_of, target, found.buckets);
    found.cell.assign(found.buckets + 1, cells);
    for (u32 c = cells; c-- > 0;) found.cell[of_cell[c]] = c;
    const std::size_t lists = 2 * found.buckets;
    found.shift = 9;
    while (found.shift > 5 && (lists * parts << found.shift) > n / 16) --found.shift;
    const auto pieces_until = [=, shift = found.shift](std::size_t t) { return (n * t / parts >> shift) + t * (lists + 1); };
    double *UQ_RESTRICT rows = space.get<double>(pieces_until(parts) << found.shift);
    P *UQ_RESTRICT carried = carry ? carry->get<P>(pieces_until(parts) << found.shift) : nullptr;
    found.rows = rows;
    found.count.resize(parts * lists);
    found.head.resize(parts * lists);
    found.next.resize(pieces_until(parts));
    over_rows(n, threads, [=, &found, &of_cell](std::size_t t, std::size_t from, std::size_t to) {
        std::vector<u32> place(lists), full(lists, 0);
        u32 *UQ_RESTRICT own = place.data(), *UQ_RESTRICT pieces = full.data(), *UQ_RESTRICT next = found.next.data();
        const u16 *UQ_RESTRICT bucket = of_cell.data();
        const int shift = found.shift;
        const u32 last = (u32(1) << shift) - 1;
        u32 fresh = static_cast<u32>(pieces_until(t));  // the next piece that nobody has
        for (std::size_t list = 0; list < lists; ++list) {
            found.head[t * lists + list] = fresh;
            own[list] = fresh++ << shift;
        }
        u32 at[kChunk];
        for (; from < to; from += kChunk) {
            const std::size_t size = std::min(kChunk, to - from);
            const double *UQ_RESTRICT x = score + from;
            for (std::size_t i = 0; i < size; ++i) at[i] = cell_of(x[i]);
            const auto find_places = [&](auto far, auto second) {  // each kind has a loop of its own
                for (std::size_t i = 0; i < size; ++i) {
                    const u32 list = 2 * u32(bucket[at[i]]) + second(from + i), here = own[list];
                    at[i] = here;
                    if (far.value) fetch(rows + here);
                    own[list] = here + 1;
                    if ((here & last) == last) {  // the piece is full
                        next[here >> shift] = fresh;
                        own[list] = fresh++ << shift;
                        ++pieces[list];
                    }
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
        for (std::size_t list = 0; list < lists; ++list) {
            found.count[t * lists + list] = (pieces[list] << shift) + (own[list] & last);
        }
    });
    return found;
}

}  // namespace uq
