// The Python side of the kernels. Shapes are validated in Python; here only memory is handed over.
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

static void write_keystream(nb::bytes key, u64 block, u64 keep, Out<std::uint8_t> out) {
    if (key.size() != 32 || !has_keystream()) throw std::invalid_argument("no key stream for this key or processor");
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
    if (!has_keystream()) throw std::invalid_argument("no key stream on this processor");
    if (keys.size() != 32 * number || starts.size() != number || counts.size() != number || bits.size() != number)
        throw std::invalid_argument("each field has a key and a place");
    std::vector<FieldPlace> made(number);
    for (std::size_t i = 0; i < number; ++i)
        made[i] = {keys.data() + 32 * i, offsets.data()[i], starts.data()[i], counts.data()[i],
                   static_cast<int>(bits.data()[i])};
    return made;
}

static void expand(In<std::uint8_t> keys, Row offsets, Row starts, Row counts, Row bits, Out<std::uint8_t> out) {
    const auto fields = places(keys, offsets, starts, counts, bits);
    std::uint8_t* data = out.data();
    Release release;
    expand_fields(fields.data(), fields.size(), data);
}

// The tables of a phase, as Python keeps them.
struct Tables {
    In<std::int32_t> high;
    std::optional<In<std::int32_t>> low;
    Trig trig;

    Tables(In<std::int32_t> high_rows, nb::object low_rows, int bits, int scale) : high(high_rows) {
        if (!low_rows.is_none()) low = nb::cast<In<std::int32_t>>(low_rows);
        trig = {high.data(), low ? low->data() : nullptr, bits, low ? bits / 2 : 0, scale};
        const std::size_t rows = low ? std::size_t{1} << (bits - bits / 2) : std::size_t{1} << bits;
        if (high.size() != 2 * rows || (low && low->size() != std::size_t{2} << (bits / 2)))
            throw std::invalid_argument("tables do not match the number of bits");
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
    void walsh_hadamard(In<u64> x, Out<u64> out, std::size_t n) const {
        const std::size_t rows = x.size() / n;
        Release release;
        kernels.walsh_hadamard(x.data(), out.data(), rows, n);
    }
    void round_open(In<u64> x, std::optional<InAny> mask, OutAny out, int drop, int bits, bool ties_up) const {
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
        const std::size_t size = buffer.size(), count = out.size();
        Release release;
        kernels.unpack_sum(buffer.data(), size, values.data(), out.data(), out.itemsize(), count, bits);
    }
    void correct(In<std::uint8_t> keys, Row offsets, Row starts, Row counts, Row bits,
                 const std::vector<In<u64>>& values, Out<std::uint8_t> out) const {
        const auto fields = places(keys, offsets, starts, counts, bits);
        if (values.size() != fields.size()) throw std::invalid_argument("each field has values");
        for (std::size_t i = 0; i < fields.size(); ++i)
            if (values[i].size() != fields[i].count) throw std::invalid_argument("a field has another number of values");
        std::uint8_t* data = out.data();
        Release release;
        for (std::size_t i = 0; i < fields.size(); ++i) correct_field(kernels, fields[i], values[i].data(), data);
    }
    void unpack_fields(In<std::uint8_t> buffer, Row from, Row starts, Row counts, Row bits, Row itemsizes,
                       Out<std::uint8_t> out) const {
        const std::size_t number = from.size();
        if (starts.size() != number || counts.size() != number || bits.size() != number || itemsizes.size() != number)
            throw std::invalid_argument("each field has a place");
        const std::uint8_t* packed = buffer.data();
        std::uint8_t* data = out.data();
        Release release;
        for (std::size_t i = 0; i < number; ++i) {
            const std::size_t count = counts.data()[i];
            const int width = static_cast<int>(bits.data()[i]);
            kernels.unpack(packed + from.data()[i], (count * width + 7) / 8, data + starts.data()[i],
                           itemsizes.data()[i], count, width);
        }
    }
    void trig_words(InAny phase, Out<i64> cos, Out<i64> sin, const Tables& tables) const {
        const std::size_t count = phase.size();
        Release release;
        kernels.trig_words(compact(phase), cos.data(), sin.data(), count, tables.trig);
    }
    void trig_combine(InAny phase, In<u64> cos_share, In<u64> sin_share, Out<u64> out, const Tables& tables,
                      In<i64> cos, In<i64> sin, In<i64> harmonics, int shift) const {
        const Series series{cos.data(), sin.data(), harmonics.data(), harmonics.size(), shift};
        const std::size_t count = phase.size();
        Release release;
        kernels.trig_combine(compact(phase), cos_share.data(), sin_share.data(), out.data(), count, tables.trig,
                             series);
    }
    void rotate(InAny phase, In<u64> a, In<u64> b, std::optional<Out<u64>> cosine, std::optional<Out<u64>> sine,
                const Tables& tables) const {
        const std::size_t count = phase.size();
        u64* to_cosine = cosine ? cosine->data() : nullptr;
        u64* to_sine = sine ? sine->data() : nullptr;
        Release release;
        kernels.rotate(compact(phase), a.data(), b.data(), to_cosine, to_sine, count, tables.trig);
    }
    void hadamard_cos(InAny phase, In<u64> a, In<u64> b, std::optional<In<u64>> bias, Out<u64> out,
                      const Tables& tables, std::size_t size, std::array<std::size_t, 4> pool,
                      const std::vector<In<u64>>& weight) const {
        const HadamardLayer shape = layer(a, out, size, pool);
        const u64* biases = bias ? bias->data() : nullptr;
        Release release;
        kernels.hadamard_cos(cosine(phase, a, b, weight), biases, out.data(), shape, tables.trig);
    }
    void hadamard_cos_open(InAny phase, In<u64> a, In<u64> b, std::optional<In<u64>> bias, OutAny out,
                           const Tables& tables, std::size_t size, std::array<std::size_t, 4> pool,
                           std::optional<InAny> mask, int drop, int bits, bool ties_up,
                           const std::vector<In<u64>>& weight) const {
        const HadamardLayer shape = layer(a, out, size, pool);
        const u64* biases = bias ? bias->data() : nullptr;
        const Opening opening{mask ? mask->data() : nullptr, out.itemsize(), drop, bits, ties_up};
        Release release;
        kernels.hadamard_cos_open(cosine(phase, a, b, weight), biases, out.data(), shape, tables.trig, opening);
    }

    void hadamard_back(InAny opened, In<u64> b, int bits, bool with_public, InAny phase,
                       const std::vector<In<u64>>& terms, In<u64> weight, u64 step, int step_shift, i64 slope,
                       int slope_shift, Out<u64> total, Out<u64> steps, OutAny out, const Tables& tables, InAny mask,
                       int drop, int out_bits, bool ties_up) const {
        if (terms.size() != 12) throw std::invalid_argument("twelve arrays of terms expected");
        const LiftedRows x{compact(opened), nullptr, b.data(), bits, with_public};
        const auto at = [&](std::size_t i) { return terms[i].data(); };
        const FusedTerms fused{compact(phase), at(0), at(1), at(2),  at(3),  at(4), at(5),
                               at(6),          at(7), at(8), at(9), at(10), at(11), weight.data()};
        const BackFactors factors{step, step_shift, static_cast<u64>(slope), slope_shift, bits};
        const BackShape shape{b.shape(0), b.shape(1), steps.shape(0), out.shape(1)};
        const Opening opening{mask.data(), out.itemsize(), drop, out_bits, ties_up};
        Release release;
        kernels.hadamard_back(x, fused, factors, total.data(), steps.data(), out.data(), shape, tables.trig, opening);
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
        const std::size_t rows = m.shape(0), width = m.shape(1), units = sums.shape(0);
        Release release;
        kernels.lifted_sums(x, w, m_mask.data(), b_mask.data(), total.data(), sums.data(), rows, width, units);
    }
    void lifted_times(In<u64> E, In<u64> t, In<u64> factor, In<u64> m_factor, In<u64> b_factor, Out<u64> out,
                      std::array<std::size_t, 4> pool) const {
        const LiftedShape shape = lifted(E, factor, out, pool);
        Release release;
        kernels.lifted_times(E.data(), t.data(), factor.data(), m_factor.data(), b_factor.data(), out.data(), shape);
    }
    void lifted_product(In<u64> E, In<u64> t, In<u64> m, In<u64> b, In<u64> opened, In<u64> mask, In<u64> m_mask,
                        In<u64> b_mask, Out<u64> out, bool with_public, std::array<std::size_t, 4> pool) const {
        const LiftedShape shape = lifted(E, opened, out, pool);
        Release release;
        kernels.lifted_product(E.data(), t.data(), m.data(), b.data(), opened.data(), mask.data(), m_mask.data(),
                               b_mask.data(), out.data(), with_public, shape);
    }

  private:
    static Cosine cosine(const InAny& phase, const In<u64>& a, const In<u64>& b, const std::vector<In<u64>>& weight) {
        if (weight.empty()) return {compact(phase), a.data(), b.data(), nullptr, nullptr, nullptr};
        if (weight.size() != 3) throw std::invalid_argument("a weight is three arrays");
        return {compact(phase), a.data(), b.data(), weight[0].data(), weight[1].data(), weight[2].data()};
    }
    static LiftedShape lifted(const In<u64>& E, const In<u64>& factor, const Out<u64>& out,
                              const std::array<std::size_t, 4>& pool) {
        return {out.shape(0), out.shape(1), E.ndim() == 2 ? E.shape(1) : 0, factor.ndim() == 2 ? factor.shape(1) : 0,
                {pool[0], pool[1], pool[2], pool[3]}};
    }
    template <class Array>
    static HadamardLayer layer(const In<u64>& a, const Array& out, std::size_t size,
                               const std::array<std::size_t, 4>& pool) {
        return {a.shape(0), a.shape(1), size, out.shape(1), {pool[0], pool[1], pool[2], pool[3]}};
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
    m.def("expand", &expand, "The halves of many fields, each from its own stream, each at its own place.");
    bind_oblivious(m);
    nb::class_<Tables>(m, "Tables").def(nb::init<In<std::int32_t>, nb::object, int, int>(), "high"_a, "low"_a.none(),
                                        "bits"_a, "scale"_a);
    nb::class_<Bound>(m, "Kernels")
        .def(nb::init<const std::string&>(), "level"_a)
        .def_ro("level", &Bound::level)
        .def_prop_ro("title", &Bound::title)
        .def("matmul", &Bound::matmul)
        .def("conv2d", &Bound::conv2d)
        .def("walsh_hadamard", &Bound::walsh_hadamard)
        .def("round_open", &Bound::round_open, "x"_a, "mask"_a.none(), "out"_a, "drop"_a, "bits"_a, "ties_up"_a)
        .def("pack", &Bound::pack)
        .def("unpack", &Bound::unpack)
        .def("unpack_sum", &Bound::unpack_sum)
        .def("correct", &Bound::correct)
        .def("unpack_fields", &Bound::unpack_fields)
        .def("trig_words", &Bound::trig_words)
        .def("trig_combine", &Bound::trig_combine)
        .def("rotate", &Bound::rotate, "phase"_a, "a"_a, "b"_a, "cosine"_a.none(), "sine"_a.none(), "tables"_a)
        .def("hadamard_cos", &Bound::hadamard_cos, "phase"_a, "a"_a, "b"_a, "bias"_a.none(), "out"_a, "tables"_a,
             "size"_a, "pool"_a, "weight"_a)
        .def("hadamard_cos_open", &Bound::hadamard_cos_open, "phase"_a, "a"_a, "b"_a, "bias"_a.none(), "out"_a,
             "tables"_a, "size"_a, "pool"_a, "mask"_a.none(), "drop"_a, "bits"_a, "ties_up"_a, "weight"_a)
        .def("hadamard_back", &Bound::hadamard_back)
        .def("spread", &Bound::spread)
        .def("pool_sum", &Bound::pool_sum)
        .def("lifted_sums", &Bound::lifted_sums)
        .def("lifted_times", &Bound::lifted_times)
        .def("lifted_product", &Bound::lifted_product);
}
