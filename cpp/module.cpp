// The Python side of the kernels.
//
// Those that Python calls with arguments as they are (`compiled_first`) refuse what does not fit: arrays of another type or
// layout are a TypeError, shapes a ValueError. The others rely on the checks of Python.
#include "dispatch.h"
#include "keystream.h"
#include "material.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <initializer_list>
#include <optional>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace nb = nanobind;
using namespace nb::literals;
using namespace hdcos;

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using InAny = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using OutAny = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Release = nb::gil_scoped_release;

// The first touch of a fresh page costs more than the arithmetic on it.
static void keep_memory() {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

static Compact compact(const InAny& x) { return {x.data(), x.itemsize()}; }

static void expect(bool fits) {
    if (!fits) throw std::invalid_argument("arrays or numbers do not fit together");
}

// Whether these are unsigned integers of the smallest type for values of `bits` bits.
template <class Array>
static bool holds(const Array& x, int bits) {
    return bits >= 1 && bits <= 64 && x.itemsize() == item_bytes(bits) &&
           x.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt);
}

template <class A>
static bool shaped(const A& a, std::initializer_list<std::size_t> shape) {
    if (a.ndim() != shape.size()) return false;
    std::size_t axis = 0;
    for (std::size_t length : shape)
        if (a.shape(axis++) != length) return false;
    return true;
}

template <class A, class B>
static bool alike(const A& a, const B& b) {
    if (a.ndim() != b.ndim()) return false;
    for (std::size_t axis = 0; axis < a.ndim(); ++axis)
        if (a.shape(axis) != b.shape(axis)) return false;
    return true;
}

// Whether `a` has the shape of `b` and one more axis.
template <class A, class B>
static bool extends(const A& a, const B& b, std::size_t length) {
    if (a.ndim() != b.ndim() + 1 || a.shape(b.ndim()) != length) return false;
    for (std::size_t axis = 0; axis < b.ndim(); ++axis)
        if (a.shape(axis) != b.shape(axis)) return false;
    return true;
}

static bool power_of_two(std::size_t n) { return n && !(n & (n - 1)); }

static bool opens(int drop, int bits) { return drop >= 0 && bits >= 1 && drop + bits <= 64; }

// Whether pooling takes so many units.
static bool pools(const std::array<std::size_t, 4>& pool, std::size_t units) {
    const auto [channels, height, width, window] = pool;
    std::size_t area, count;
    return window && window < 1 << 16 && height % window == 0 && width % window == 0 &&
           !__builtin_mul_overflow(height, width, &area) && !__builtin_mul_overflow(channels, area, &count) &&
           count == units;
}

// Whether so many values of `size` bits each, which begin at byte `start`, lie in `bytes` bytes.
static bool lie_in(std::size_t bytes, u64 start, u64 count, u64 size) {
    return start <= bytes && count <= 8 * (bytes - start) / size;
}

static void write_keystream(nb::bytes key, u64 block, u64 keep, Out<std::uint8_t> out) {
    if (key.size() != 32 || block >> 60 || !has_keystream()) throw std::invalid_argument("no key stream for this key or processor");
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(key.c_str());
    const std::size_t size = out.size();
    Release release;
    KeyStream(bytes).read(16 * block, keep, out.data(), size);
}

using Row = nb::ndarray<const u64, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Where the fields of a chunk lie, as Python lays them out.
static std::vector<FieldPlace> places(const In<std::uint8_t>& keys, const Row& offsets, const Row& starts,
                                      const Row& counts, const Row& bits) {
    const std::size_t number = offsets.size();
    expect(has_keystream() && keys.size() == 32 * number);
    expect(starts.size() == number && counts.size() == number && bits.size() == number);
    std::vector<FieldPlace> made(number);
    for (std::size_t i = 0; i < number; ++i) {
        const u64 width = bits.data()[i];
        expect(width >= 1 && width <= 64);
        made[i] = {keys.data() + 32 * i, offsets.data()[i], starts.data()[i], counts.data()[i],
                   static_cast<int>(width)};
    }
    return made;
}

static void expand(In<std::uint8_t> keys, Row offsets, Row starts, Row counts, Row bits, Out<std::uint8_t> out) {
    const auto fields = places(keys, offsets, starts, counts, bits);
    for (const FieldPlace& field : fields)
        expect(lie_in(out.size(), field.start, field.count, 8 * item_bytes(field.bits)));
    std::uint8_t* data = out.data();
    Release release;
    expand_fields(fields.data(), fields.size(), data);
}

// The table of a phase, as Python keeps it.
struct Table {
    In<std::int32_t> rows;
    Trig trig;

    Table(In<std::int32_t> rows_, int bits, int scale) : rows(rows_), trig{rows.data(), bits, scale} {
        if (bits < 1 || bits > MAX_BITS || rows.size() != std::size_t{2} << (bits > DIRECT_BITS ? HIGH_BITS : bits))
            throw std::invalid_argument("the table does not match the number of bits");
    }
};

struct Bound {
    std::string level;
    const Kernels& kernels;

    explicit Bound(const std::string& name) : level(name), kernels(kernels_of(name)) {}
    std::string title() const { return title_of(level); }

    void matmul(In<u64> a, In<u64> b, Out<u64> c) const {
        const std::size_t n = a.shape(0), d = a.shape(1), k = b.shape(1);
        Release release;
        kernels.matmul(a.data(), b.data(), c.data(), n, d, k);
    }
    void conv2d(In<u64> x, In<u64> weight, Out<u64> out, std::size_t stride, std::size_t padding) const {
        const Conv shape{x.shape(0), x.shape(1), x.shape(2), x.shape(3), weight.shape(0), weight.shape(2),
                         weight.shape(3), stride, padding, out.shape(2), out.shape(3)};
        Release release;
        kernels.conv2d(x.data(), weight.data(), out.data(), shape);
    }
    void walsh_hadamard(In<u64> x, Out<u64> out) const {
        expect(x.ndim() && alike(x, out) && power_of_two(x.shape(x.ndim() - 1)));
        expect(x.data() == out.data() || x.data() + x.size() <= out.data() || out.data() + x.size() <= x.data());
        const std::size_t n = x.shape(x.ndim() - 1), rows = x.size() / n;
        Release release;
        kernels.walsh_hadamard(x.data(), out.data(), rows, n);
    }
    void round_open(In<u64> x, std::optional<InAny> mask, OutAny out, int drop, int bits, bool ties_up) const {
        expect(opens(drop, bits) && holds(out, bits) && alike(x, out));
        expect(!mask || (holds(*mask, bits) && alike(x, *mask)));
        const void* masks = mask ? mask->data() : nullptr;
        const std::size_t itemsize = out.itemsize(), count = x.size();
        Release release;
        kernels.round_open(x.data(), masks, out.data(), itemsize, count, drop, bits, ties_up);
    }
    void pack(InAny values, Out<std::uint8_t> out, int bits) const {
        const std::size_t count = values.size();
        Release release;
        kernels.pack(compact(values), out.data(), count, bits);
    }
    void unpack(In<std::uint8_t> buffer, OutAny out, int bits) const {
        const std::size_t size = buffer.size(), count = out.size();
        Release release;
        kernels.unpack(buffer.data(), size, out.data(), out.itemsize(), count, bits);
    }
    void unpack_sum(In<std::uint8_t> buffer, InAny values, OutAny out, int bits) const {
        const std::size_t size = buffer.size(), count = out.size(), rest = count * bits % 8;
        expect(holds(values, bits) && holds(out, bits) && alike(values, out));
        expect(buffer.ndim() == 1 && size == (count * bits + 7) / 8 && !(rest && buffer.data()[size - 1] >> rest));
        Release release;
        kernels.unpack_sum(buffer.data(), size, values.data(), out.data(), out.itemsize(), count, bits);
    }
    void correct(In<std::uint8_t> keys, Row offsets, Row starts, Row counts, Row bits,
                 const std::vector<In<u64>>& values, Out<std::uint8_t> out) const {
        const auto fields = places(keys, offsets, starts, counts, bits);
        expect(values.size() == fields.size());
        for (std::size_t i = 0; i < fields.size(); ++i)
            expect(values[i].size() == fields[i].count &&
                   lie_in(out.size(), fields[i].start, fields[i].count, fields[i].bits));
        std::uint8_t* data = out.data();
        Release release;
        for (std::size_t i = 0; i < fields.size(); ++i) correct_field(kernels, fields[i], values[i].data(), data);
    }
    void unpack_fields(In<std::uint8_t> buffer, Row from, Row starts, Row counts, Row bits,
                       Out<std::uint8_t> out) const {
        const std::size_t number = from.size();
        expect(starts.size() == number && counts.size() == number && bits.size() == number);
        for (std::size_t i = 0; i < number; ++i) {
            const u64 width = bits.data()[i], count = counts.data()[i];
            expect(width >= 1 && width <= 64 && lie_in(buffer.size(), from.data()[i], count, width));
            expect(lie_in(out.size(), starts.data()[i], count, 8 * item_bytes(static_cast<int>(width))));
        }
        const std::uint8_t* packed = buffer.data();
        std::uint8_t* data = out.data();
        Release release;
        for (std::size_t i = 0; i < number; ++i) {
            const std::size_t count = counts.data()[i];
            const int width = static_cast<int>(bits.data()[i]);
            kernels.unpack(packed + from.data()[i], (count * width + 7) / 8, data + starts.data()[i],
                           item_bytes(width), count, width);
        }
    }
    void trig_words(InAny phase, Out<i64> cos, Out<i64> sin, const Table& table) const {
        const std::size_t count = phase.size();
        Release release;
        kernels.trig_words(compact(phase), cos.data(), sin.data(), count, table.trig);
    }
    void dither(In<i64> x, In<u64> coins, Out<u64> out, int drop) const {
        const std::size_t count = x.size();
        expect(drop >= 1 && drop <= 16 && alike(x, coins) && alike(x, out));
        Release release;
        kernels.dither(x.data(), coins.data(), out.data(), count, drop);
    }
    void trig_combine(InAny phase, In<u64> cos_share, In<u64> sin_share, Out<u64> out, const Table& table,
                      In<i64> cos, In<i64> sin, In<i64> harmonics, int shift) const {
        const std::size_t count = phase.size(), terms = harmonics.size();
        expect(holds(phase, table.trig.bits) && shift >= 0 && shift < 64);
        expect(shaped(cos, {terms}) && shaped(sin, {terms}) && shaped(harmonics, {terms}));
        expect(extends(cos_share, phase, terms) && extends(sin_share, phase, terms) && alike(phase, out));
        const Series series{cos.data(), sin.data(), harmonics.data(), terms, shift};
        Release release;
        kernels.trig_combine(compact(phase), cos_share.data(), sin_share.data(), out.data(), count, table.trig,
                             series);
    }
    void rotate(InAny phase, In<u64> a, In<u64> b, std::optional<Out<u64>> cosine, std::optional<Out<u64>> sine,
                const Table& table) const {
        const std::size_t count = phase.size();
        u64* to_cosine = cosine ? cosine->data() : nullptr;
        u64* to_sine = sine ? sine->data() : nullptr;
        Release release;
        kernels.rotate(compact(phase), a.data(), b.data(), to_cosine, to_sine, count, table.trig);
    }
    void hadamard_cos(InAny phase, In<u64> a, In<u64> b, std::optional<In<u64>> bias, Out<u64> out,
                      const Table& table, std::size_t size, std::array<std::size_t, 4> pool,
                      const std::vector<In<u64>>& weight) const {
        const HadamardLayer shape = layer(phase, a, b, bias, out, table, size, pool, weight);
        const u64* biases = bias ? bias->data() : nullptr;
        Release release;
        kernels.hadamard_cos(cosine(phase, a, b, weight), biases, out.data(), shape, table.trig);
    }
    void hadamard_cos_open(InAny phase, In<u64> a, In<u64> b, std::optional<In<u64>> bias, OutAny out,
                           const Table& table, std::size_t size, std::array<std::size_t, 4> pool,
                           std::optional<InAny> mask, int drop, int bits, bool ties_up,
                           const std::vector<In<u64>>& weight) const {
        const HadamardLayer shape = layer(phase, a, b, bias, out, table, size, pool, weight);
        expect(opens(drop, bits) && holds(out, bits) && (!mask || (holds(*mask, bits) && alike(*mask, out))));
        const u64* biases = bias ? bias->data() : nullptr;
        const Opening opening{mask ? mask->data() : nullptr, out.itemsize(), drop, bits, ties_up};
        Release release;
        kernels.hadamard_cos_open(cosine(phase, a, b, weight), biases, out.data(), shape, table.trig, opening);
    }

    void hadamard_back(InAny opened, In<u64> b, int bits, bool with_public, InAny phase,
                       const std::vector<In<u64>>& terms, In<u64> weight, u64 step, int step_shift, i64 slope,
                       int slope_shift, Out<u64> total, Out<u64> steps, OutAny out, const Table& table, InAny mask,
                       int drop, int out_bits, bool ties_up) const {
        expect(terms.size() == 12 && phase.ndim() == 2 && b.ndim() == 2 && alike(opened, b));
        for (const In<u64>& term : terms) expect(alike(term, phase));
        const std::size_t rows = phase.shape(0), units = phase.shape(1), size = out.ndim() == 2 ? out.shape(1) : 0;
        expect(b.shape(0) == rows && units <= b.shape(1) && units <= size && power_of_two(size));
        expect(shaped(weight, {units}) && shaped(out, {rows, size}) && alike(mask, out));
        expect(shaped(total, {b.shape(1)}) && shaped(steps, {units}) && bits >= 17 && bits <= 62);
        expect(holds(opened, bits) && holds(phase, table.trig.bits));
        expect(opens(drop, out_bits) && holds(mask, out_bits) && holds(out, out_bits));
        const LiftedRows x{compact(opened), nullptr, b.data(), bits, with_public};
        const auto at = [&](std::size_t i) { return terms[i].data(); };
        const FusedTerms fused{compact(phase), at(0), at(1), at(2),  at(3),  at(4), at(5),
                               at(6),          at(7), at(8), at(9), at(10), at(11), weight.data()};
        const BackFactors factors{step, step_shift, static_cast<u64>(slope), slope_shift, bits};
        const BackShape shape{b.shape(0), b.shape(1), steps.shape(0), out.shape(1)};
        const Opening opening{mask.data(), out.itemsize(), drop, out_bits, ties_up};
        Release release;
        kernels.hadamard_back(x, fused, factors, total.data(), steps.data(), out.data(), shape, table.trig, opening);
    }
    void spread(In<u64> x, Out<u64> out, std::array<std::size_t, 4> pool) const {
        const std::size_t rows = out.size() / (pool[0] * pool[1] * pool[2]);
        Release release;
        kernels.spread(x.data(), out.data(), rows, {pool[0], pool[1], pool[2], pool[3]});
    }
    void pool_sum(In<u64> x, Out<u64> out, std::array<std::size_t, 4> pool) const {
        const std::size_t rows = x.size() / (pool[0] * pool[1] * pool[2]);
        Release release;
        kernels.pool_sum(x.data(), out.data(), rows, {pool[0], pool[1], pool[2], pool[3]});
    }
    void lifted_sums(InAny opened, In<u64> m, In<u64> b, int bits, bool with_public, In<u64> w_opened, In<u64> w_mask,
                     In<u64> m_mask, In<u64> b_mask, Out<u64> total, Out<u64> sums) const {
        const LiftedRows x{compact(opened), m.data(), b.data(), bits, with_public};
        const MaskedRows w{w_opened.data(), w_mask.data()};
        expect(m.ndim() == 2 && m_mask.ndim() == 2 && bits >= 2 && bits <= 62 && holds(opened, bits < 17 ? 17 : bits));
        const std::size_t rows = m.shape(0), width = m.shape(1), units = m_mask.shape(1);
        expect(alike(opened, m) && alike(b, m) && m_mask.shape(0) == rows && units <= width);
        expect(alike(w_opened, m_mask) && alike(w_mask, m_mask) && alike(b_mask, m_mask));
        expect(shaped(total, {width}) && shaped(sums, {units}));
        Release release;
        kernels.lifted_sums(x, w, m_mask.data(), b_mask.data(), total.data(), sums.data(), rows, width, units);
    }
    void lifted_times(In<u64> E, In<u64> t, In<u64> factor, In<u64> m_factor, In<u64> b_factor, Out<u64> out,
                      std::array<std::size_t, 4> pool) const {
        const LiftedShape shape = lifted(E, factor, out, pool);
        expect(alike(t, E) && alike(m_factor, out) && alike(b_factor, out));
        Release release;
        kernels.lifted_times(E.data(), t.data(), factor.data(), m_factor.data(), b_factor.data(), out.data(), shape);
    }
    void lifted_product(In<u64> E, In<u64> t, In<u64> m, In<u64> b, In<u64> opened, In<u64> mask, In<u64> m_mask,
                        In<u64> b_mask, Out<u64> out, bool with_public, std::array<std::size_t, 4> pool) const {
        const LiftedShape shape = lifted(E, opened, out, pool);
        expect(alike(t, E) && alike(m, E) && alike(b, E) && alike(mask, opened));
        expect(alike(m_mask, out) && alike(b_mask, out));
        Release release;
        kernels.lifted_product(E.data(), t.data(), m.data(), b.data(), opened.data(), mask.data(), m_mask.data(),
                               b_mask.data(), out.data(), with_public, shape);
    }

  private:
    static Cosine cosine(const InAny& phase, const In<u64>& a, const In<u64>& b, const std::vector<In<u64>>& weight) {
        if (weight.empty()) return {compact(phase), a.data(), b.data(), nullptr, nullptr, nullptr};
        return {compact(phase), a.data(), b.data(), weight[0].data(), weight[1].data(), weight[2].data()};
    }
    static LiftedShape lifted(const In<u64>& E, const In<u64>& factor, const Out<u64>& out,
                              const std::array<std::size_t, 4>& pool) {
        expect(out.ndim() == 2 && pools(pool, out.shape(1)));
        const std::size_t rows = out.shape(0), windows = out.shape(1) / (pool[3] * pool[3]);
        expect(shaped(E, {windows}) || shaped(E, {rows, windows}));
        expect(alike(factor, out) || shaped(factor, {out.shape(1)}));
        return {out.shape(0), out.shape(1), E.ndim() == 2 ? E.shape(1) : 0, factor.ndim() == 2 ? factor.shape(1) : 0,
                {pool[0], pool[1], pool[2], pool[3]}};
    }
    template <class Array>
    static HadamardLayer layer(const InAny& phase, const In<u64>& a, const In<u64>& b,
                               const std::optional<In<u64>>& bias, const Array& out, const Table& table,
                               std::size_t size, const std::array<std::size_t, 4>& pool,
                               const std::vector<In<u64>>& weight) {
        expect(a.ndim() == 2 && out.ndim() == 2 && alike(phase, a) && alike(b, a) && holds(phase, table.trig.bits));
        const std::size_t units = a.shape(1), outputs = out.shape(1);
        expect(pools(pool, units) && power_of_two(size) && units / (pool[3] * pool[3]) <= size);
        expect(out.shape(0) == a.shape(0) && outputs >= 1 && outputs <= size && (!bias || shaped(*bias, {outputs})));
        if (!weight.empty())
            expect(weight.size() == 3 && shaped(weight[0], {units}) && alike(weight[1], a) && alike(weight[2], a));
        return {a.shape(0), units, size, outputs, {pool[0], pool[1], pool[2], pool[3]}};
    }
};

void bind_oblivious(nb::module_& parent);  // oblivious_module.cpp

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // Python keeps tables and kernels in caches until the process ends
    m.doc() = "Ring kernels compiled for several instruction sets.";
    m.def("levels", &levels, "Instruction sets this processor can run, fastest last.");
    m.def("keep_memory", &keep_memory, "Keep freed pages in the process.");
    m.def("has_keystream", &has_keystream, "Whether this processor has vector AES.");
    m.def("keystream", &write_keystream, "AES-256 in counter mode: the stream from a block on, words masked.");
    m.def("expand", &expand, "keys"_a.noconvert(), "offsets"_a.noconvert(), "starts"_a.noconvert(),
          "counts"_a.noconvert(), "bits"_a.noconvert(), "out"_a.noconvert(),
          "The halves of many fields, each from its own stream, each at its own place.");
    bind_oblivious(m);
    nb::class_<Table>(m, "Table").def(nb::init<In<std::int32_t>, int, int>(), "rows"_a, "bits"_a, "scale"_a);
    const auto any = nb::arg();
    const auto as_is = nb::arg().noconvert();
    const auto or_none = nb::arg().noconvert().none();
    nb::class_<Bound>(m, "Kernels")
        .def(nb::init<const std::string&>(), "level"_a)
        .def_ro("level", &Bound::level)
        .def_prop_ro("title", &Bound::title)
        .def("matmul", &Bound::matmul)
        .def("conv2d", &Bound::conv2d)
        .def("walsh_hadamard", &Bound::walsh_hadamard, as_is, as_is)
        .def("round_open", &Bound::round_open, as_is, or_none, as_is, any, any, any)
        .def("pack", &Bound::pack)
        .def("unpack", &Bound::unpack)
        .def("unpack_sum", &Bound::unpack_sum, as_is, as_is, as_is, any)
        .def("correct", &Bound::correct, as_is, as_is, as_is, as_is, as_is, as_is, as_is)
        .def("unpack_fields", &Bound::unpack_fields, as_is, as_is, as_is, as_is, as_is, as_is)
        .def("trig_words", &Bound::trig_words)
        .def("dither", &Bound::dither)
        .def("trig_combine", &Bound::trig_combine, as_is, as_is, as_is, as_is, any, as_is, as_is, as_is, any)
        .def("rotate", &Bound::rotate, "phase"_a, "a"_a, "b"_a, "cosine"_a.none(), "sine"_a.none(), "table"_a)
        .def("hadamard_cos", &Bound::hadamard_cos, as_is, as_is, as_is, or_none, as_is, any, any, any, as_is)
        .def("hadamard_cos_open", &Bound::hadamard_cos_open, as_is, as_is, as_is, or_none, as_is, any, any, any,
             or_none, any, any, any, as_is)
        .def("hadamard_back", &Bound::hadamard_back, as_is, as_is, any, any, as_is, as_is, as_is, any, any, any, any,
             as_is, as_is, as_is, any, as_is, any, any, any)
        .def("spread", &Bound::spread)
        .def("pool_sum", &Bound::pool_sum)
        .def("lifted_sums", &Bound::lifted_sums, as_is, as_is, as_is, any, any, as_is, as_is, as_is, as_is, as_is,
             as_is)
        .def("lifted_times", &Bound::lifted_times, as_is, as_is, as_is, as_is, as_is, as_is, any)
        .def("lifted_product", &Bound::lifted_product, as_is, as_is, as_is, as_is, as_is, as_is, as_is, as_is, as_is,
             any, any);
}
