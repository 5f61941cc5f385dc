// The Python side of the kernels.
//
// `Kernels` has the interface of hdcos.ring.reference. A kernel takes arrays that fit and refuses all others by a TypeError,
// before it computes anything: nanobind by type and order, `expect` by shape. Results are made by NumPy, which keeps
// small arrays at hand.
#include "dcf.h"
#include "dispatch.h"
#include "keystream.h"
#include "material.h"
#include "ot.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

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
using Windows = std::array<std::size_t, 4>;  // channels, height, width and window of pooled units

// The tuples of hdcos.ring.types.
using LayerTuple = std::tuple<InAny, In<u64>, In<u64>, int, int, std::size_t, std::size_t, std::optional<In<u64>>,
                              std::optional<Windows>, std::vector<In<u64>>, std::vector<In<u64>>>;
using OpeningTuple = std::tuple<std::optional<InAny>, int, int, bool>;
using GradientTuple = std::tuple<InAny, In<u64>, int, bool, InAny, std::vector<In<u64>>, In<u64>, std::tuple<u64, int>,
                                 std::tuple<i64, int>, int, int, std::size_t>;

// The first touch of a fresh page costs more than the arithmetic on it. One arena: what one thread has freed is there
// for all of them, where an arena for each would grow until every thread has once done the largest work.
static void keep_memory() {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_ARENA_MAX, 1);
#endif
}

static Compact compact(const InAny& x) { return {x.data(), x.itemsize()}; }

static void expect(bool fits) {
    if (!fits) throw nb::type_error("arrays or numbers do not fit together");
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

// Whether entries of a row of n can change places by j ^ t for every one of these terms.
static bool moves(std::size_t terms, std::size_t n) { return terms == 1 || (power_of_two(n) && terms <= n); }

static bool opens(int drop, int bits) { return drop >= 0 && bits >= 1 && drop + bits <= 64; }

// Whether pooling takes this many units.
static bool pools(const std::array<std::size_t, 4>& pool, std::size_t units) {
    const auto [channels, height, width, window] = pool;
    std::size_t area, count;
    return window && window < 1 << 16 && height % window == 0 && width % window == 0 &&
           !__builtin_mul_overflow(height, width, &area) && !__builtin_mul_overflow(channels, area, &count) &&
           count == units;
}

// Whether `count` values of `size` bits each, which begin at byte `start`, lie in `bytes` bytes.
static bool lie_in(std::size_t bytes, u64 start, u64 count, u64 size) {
    return start <= bytes && count <= 8 * (bytes - start) / size;
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
                   static_cast<int>(width), false};
    }
    return made;
}

// What makes results.
struct NumPy {
    nb::object empty, uint8, uint16, uint32, uint64, int64;

    static const NumPy& get() {
        static const NumPy* made = new NumPy;  // never freed: the interpreter may end first
        return *made;
    }
    nb::handle compact(int bits) const { return bits <= 8 ? uint8 : bits <= 16 ? uint16 : bits <= 32 ? uint32 : uint64; }

  private:
    NumPy() {
        const nb::object numpy = nb::module_::import_("numpy"), dtype = numpy.attr("dtype");
        empty = numpy.attr("empty");
        uint8 = dtype("uint8"), uint16 = dtype("uint16"), uint32 = dtype("uint32"), uint64 = dtype("uint64");
        int64 = dtype("int64");
    }
};

template <class Array>
static Array target(nb::handle object) {
    Array array;
    expect(nb::try_cast<Array>(object, array, false));
    return array;
}

// An array for a result: the one that was given, or a new one.
template <class Array = Out<u64>>
struct Result {
    nb::object object;
    Array array;

    template <class... Lengths>
    Result(nb::handle given, nb::handle dtype, Lengths... lengths)
        : object(given.is_none() ? NumPy::get().empty(nb::make_tuple(lengths...), dtype) : nb::borrow(given)),
          array(target<Array>(object)) {
        expect(shaped(array, {static_cast<std::size_t>(lengths)...}));
    }
    // Of the shape of another array, perhaps with another last axis.
    template <class Like>
    static Result like(nb::handle dtype, const Like& other, std::optional<std::size_t> last = {}) {
        nb::list lengths;
        for (std::size_t axis = 0; axis < other.ndim(); ++axis)
            lengths.append(last && axis + 1 == other.ndim() ? *last : other.shape(axis));
        return Result(NumPy::get().empty(nb::tuple(lengths), dtype));
    }

  private:
    explicit Result(nb::object made) : object(std::move(made)), array(target<Array>(object)) {}
};

static Windows windows(const std::vector<std::size_t>& pool, std::size_t units) {
    expect(pool.empty() || pool.size() == 4);
    return pool.empty() ? Windows{units, 1, 1, 1} : Windows{pool[0], pool[1], pool[2], pool[3]};
}

// The table of a phase, as hdcos.ring.trig makes it.
static const Trig& table(int bits, int scale) {
    struct Kept {
        In<std::int32_t> rows;
        Trig trig;
    };
    static auto* known = new std::map<std::pair<int, int>, Kept>;
    const auto found = known->find({bits, scale});
    if (found != known->end()) return found->second.trig;
    expect(bits >= 1 && bits <= MAX_BITS && scale >= 0 && scale <= 30);
    const auto rows = nb::cast<In<std::int32_t>>(nb::module_::import_("hdcos.ring.trig").attr("table")(bits, scale));
    return known->emplace(std::pair{bits, scale}, Kept{rows, Trig{rows.data(), bits, scale}}).first->second.trig;
}

struct Bound {
    std::string level;
    const Kernels& kernels;

    explicit Bound(const std::string& name_) : level(name_), kernels(kernels_of(name_)) {}
    std::string name() const { return "native " + title_of(level); }
    bool has_keystream() const { return level == "v4" && hdcos::has_keystream(); }

    nb::object keystream(nb::bytes key, u64 block, u64 keep, std::size_t size) const {
        expect(key.size() == 32 && !(block >> 60) && hdcos::has_keystream());
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(key.c_str());
        const Result<Out<std::uint8_t>> out(nb::none(), NumPy::get().uint8, size);
        {
            Release release;
            KeyStream(bytes).read(16 * block, keep, out.array.data(), size);
        }
        return out.object;
    }
    nb::object matmul(In<u64> a, In<u64> b, nb::object given) const {
        expect(a.ndim() == 2 && b.ndim() == 2 && a.shape(1) == b.shape(0));
        const std::size_t n = a.shape(0), d = a.shape(1), k = b.shape(1);
        const Result<> out(given, NumPy::get().uint64, n, k);
        {
            Release release;
            kernels.matmul(a.data(), b.data(), out.array.data(), n, d, k);
        }
        return out.object;
    }
    nb::object conv2d(In<u64> x, In<u64> weight, std::size_t stride, std::size_t padding, std::size_t groups,
                      std::size_t dilation) const {
        expect(x.ndim() == 4 && weight.ndim() == 4 && stride >= 1 && groups >= 1 && dilation >= 1);
        expect(x.shape(1) % groups == 0 && x.shape(1) / groups == weight.shape(1) && weight.shape(0) % groups == 0);
        const auto side = [&](int axis) {
            const std::size_t room = x.shape(axis) + 2 * padding;
            expect(weight.shape(axis) >= 1 && room >= 1 && weight.shape(axis) - 1 <= (room - 1) / dilation);
            return (room - 1 - dilation * (weight.shape(axis) - 1)) / stride + 1;
        };
        const std::size_t height = side(2), width = side(3);
        const Result<> out(nb::none(), NumPy::get().uint64, x.shape(0), weight.shape(0), height, width);
        const Conv shape{x.shape(0), x.shape(1), x.shape(2), x.shape(3), weight.shape(0), weight.shape(2),
                         weight.shape(3), stride, padding, height, width, groups, dilation};
        {
            Release release;
            kernels.conv2d(x.data(), weight.data(), out.array.data(), shape);
        }
        return out.object;
    }
    nb::object walsh_hadamard(In<u64> x, nb::object given) const {
        expect(x.ndim() && power_of_two(x.shape(x.ndim() - 1)));
        nb::object object = given.is_none() ? Result<>::like(NumPy::get().uint64, x).object : given;
        const auto out = target<Out<u64>>(object);
        expect(alike(x, out));
        expect(x.data() == out.data() || x.data() + x.size() <= out.data() || out.data() + x.size() <= x.data());
        const std::size_t n = x.shape(x.ndim() - 1), rows = x.size() / n;
        {
            Release release;
            kernels.walsh_hadamard(x.data(), out.data(), rows, n);
        }
        return object;
    }
    nb::object round_open(In<u64> x, std::optional<InAny> mask, int drop, int bits, bool ties_up) const {
        expect(opens(drop, bits) && (!mask || (holds(*mask, bits) && alike(x, *mask))));
        const auto out = Result<OutAny>::like(NumPy::get().compact(bits), x);
        const void* masks = mask ? mask->data() : nullptr;
        const std::size_t count = x.size();
        {
            Release release;
            kernels.round_open(x.data(), masks, out.array.data(), item_bytes(bits), count, drop, bits, ties_up);
        }
        return out.object;
    }
    nb::object pack(InAny values, int bits, nb::object given) const {
        expect(holds(values, bits));
        const std::size_t count = values.size();
        const Result<Out<std::uint8_t>> out(given, NumPy::get().uint8, (count * bits + 7) / 8);
        {
            Release release;
            kernels.pack(compact(values), out.array.data(), count, bits);
        }
        return out.object;
    }
    nb::object unpack(In<std::uint8_t> buffer, std::size_t count, int bits) const {
        expect(bits >= 1 && bits <= 64 && buffer.size() >= (count * bits + 7) / 8);
        const Result<OutAny> out(nb::none(), NumPy::get().compact(bits), count);
        {
            Release release;
            kernels.unpack(buffer.data(), buffer.size(), out.array.data(), item_bytes(bits), count, bits);
        }
        return out.object;
    }
    nb::object unpack_sum(In<std::uint8_t> buffer, InAny values, int bits) const {
        expect(holds(values, bits));
        const std::size_t size = buffer.size(), count = values.size(), rest = count * bits % 8;
        expect(buffer.ndim() == 1 && size == (count * bits + 7) / 8 && !(rest && buffer.data()[size - 1] >> rest));
        const auto out = Result<OutAny>::like(NumPy::get().compact(bits), values);
        {
            Release release;
            kernels.unpack_sum(buffer.data(), size, values.data(), out.array.data(), item_bytes(bits), count, bits);
        }
        return out.object;
    }
    // The shares of many fields, each from its own stream, each at its own place.
    void expand(In<std::uint8_t> keys, Row offsets, Row starts, Row counts, Row bits, Out<std::uint8_t> out) const {
        const auto fields = places(keys, offsets, starts, counts, bits);
        for (const FieldPlace& field : fields)
            expect(lie_in(out.size(), field.start, field.count, 8 * item_bytes(field.bits)));
        std::uint8_t* data = out.data();
        Release release;
        expand_fields(fields.data(), fields.size(), data);
    }
    void correct(In<std::uint8_t> keys, Row offsets, Row starts, Row counts, Row bits,
                 const std::vector<In<u64>>& values, Out<std::uint8_t> out, std::optional<Row> by_xor) const {
        auto fields = places(keys, offsets, starts, counts, bits);
        expect(values.size() == fields.size() && (!by_xor || by_xor->size() == fields.size()));
        for (std::size_t i = 0; i < fields.size(); ++i) {
            expect(values[i].size() == fields[i].count &&
                   lie_in(out.size(), fields[i].start, fields[i].count, fields[i].bits));
            fields[i].by_xor = by_xor && by_xor->data()[i];
        }
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
    nb::tuple trig_words(InAny phase, int bits, int scale) const {
        expect(holds(phase, bits));
        const Trig& trig = table(bits, scale);
        const auto cos = Result<Out<i64>>::like(NumPy::get().int64, phase), sin = Result<Out<i64>>::like(NumPy::get().int64, phase);
        {
            Release release;
            kernels.trig_words(compact(phase), cos.array.data(), sin.array.data(), phase.size(), trig);
        }
        return nb::make_tuple(cos.object, sin.object);
    }
    nb::object dither(In<i64> x, In<u64> coins, int drop) const {
        expect(drop >= 1 && drop <= 16 && alike(x, coins));
        const auto out = Result<>::like(NumPy::get().uint64, x);
        {
            Release release;
            kernels.dither(x.data(), coins.data(), out.array.data(), x.size(), drop);
        }
        return out.object;
    }
    nb::object trig_combine(InAny phase, In<u64> cos_share, In<u64> sin_share, int bits, int scale, In<i64> cos,
                            In<i64> sin, In<i64> harmonics, int shift) const {
        const std::size_t terms = harmonics.size();
        expect(holds(phase, bits) && shift >= 0 && shift < 64);
        expect(shaped(cos, {terms}) && shaped(sin, {terms}) && shaped(harmonics, {terms}));
        expect(extends(cos_share, phase, terms) && extends(sin_share, phase, terms));
        const Trig& trig = table(bits, scale);
        const auto out = Result<>::like(NumPy::get().uint64, phase);
        const Series series{cos.data(), sin.data(), harmonics.data(), terms, shift};
        {
            Release release;
            kernels.trig_combine(compact(phase), cos_share.data(), sin_share.data(), out.array.data(), phase.size(), trig,
                                 series);
        }
        return out.object;
    }
    nb::tuple rotate(InAny phase, In<u64> a, In<u64> b, int bits, int scale, bool cosine, bool sine,
                     nb::object to_cosine, nb::object to_sine) const {
        expect(holds(phase, bits) && alike(phase, a) && alike(phase, b));
        const Trig& trig = table(bits, scale);
        const auto made = [&](bool wanted, nb::object& given) -> u64* {
            if (!wanted) given = nb::none();
            if (wanted && given.is_none()) given = Result<>::like(NumPy::get().uint64, a).object;
            if (!wanted) return nullptr;
            const auto out = target<Out<u64>>(given);
            expect(alike(out, a));
            return out.data();
        };
        u64 *cosines = made(cosine, to_cosine), *sines = made(sine, to_sine);
        {
            Release release;
            kernels.rotate(compact(phase), a.data(), b.data(), cosines, sines, phase.size(), trig);
        }
        return nb::make_tuple(to_cosine, to_sine);
    }
    nb::object hadamard_cos(const LayerTuple& layer) const {
        const Fused fused(layer);
        const Result<> out(nb::none(), NumPy::get().uint64, fused.shape.rows, fused.shape.outputs);
        {
            Release release;
            kernels.hadamard_cos(fused.z.data(), fused.bias, out.array.data(), fused.shape, *fused.trig);
        }
        return out.object;
    }
    nb::object hadamard_cos_open(const LayerTuple& layer, const OpeningTuple& opening, nb::object given) const {
        const Fused fused(layer);
        const std::size_t rows = fused.shape.rows, outputs = fused.shape.outputs;
        const Opening how = opened(opening, rows, outputs);
        const Result<OutAny> out(given, NumPy::get().compact(how.bits), rows, outputs);
        expect(holds(out.array, how.bits));
        {
            Release release;
            kernels.hadamard_cos_open(fused.z.data(), fused.bias, out.array.data(), fused.shape, *fused.trig, how);
        }
        return out.object;
    }
    nb::tuple hadamard_back(const GradientTuple& gradient, const OpeningTuple& opening) const {
        const auto& [D, b, bits, with_public, phase, terms, weight, step, slope, phase_bits, scale, size] = gradient;
        const std::size_t count = terms.size() / 10;
        expect(count && terms.size() == 2 + 10 * count && phase.ndim() == 2 && b.ndim() == 2 && alike(D, b));
        for (const In<u64>& term : terms) expect(alike(term, phase));
        const std::size_t rows = phase.shape(0), units = phase.shape(1), width = b.shape(1);
        expect(b.shape(0) == rows && units <= width && units <= size && power_of_two(size));
        expect(count == 1 ? shaped(weight, {units}) : shaped(weight, {count, units}) && moves(count, width));
        expect(bits >= 17 && bits <= 62 && holds(D, bits) && holds(phase, phase_bits));
        const Opening how = opened(opening, rows, size);
        expect(how.mask);
        const Trig& trig = table(phase_bits, scale);
        const Result<> total(nb::none(), NumPy::get().uint64, width);
        const auto steps = Result<>::like(NumPy::get().uint64, weight);
        const Result<OutAny> out(nb::none(), NumPy::get().compact(how.bits), rows, size);
        const LiftedRows x{compact(D), nullptr, b.data(), bits, with_public};
        const auto at = [&](std::size_t i) { return std::get<5>(gradient)[i].data(); };
        std::vector<FusedTerms> fused;
        for (std::size_t t = 0, i = 2; t < count; ++t, i += 10)
            fused.push_back({compact(phase), at(0), at(1), at(i), at(i + 1), at(i + 2), at(i + 3), at(i + 4), at(i + 5),
                             at(i + 6), at(i + 7), at(i + 8), at(i + 9), weight.data() + t * units});
        const BackFactors factors{std::get<0>(step), std::get<1>(step), static_cast<u64>(std::get<0>(slope)),
                                  std::get<1>(slope), bits};
        const BackShape shape{rows, width, units, size, count};
        {
            Release release;
            kernels.hadamard_back(x, fused.data(), factors, total.array.data(), steps.array.data(), out.array.data(), shape,
                                  trig, how);
        }
        return nb::make_tuple(total.object, steps.object, out.object);
    }
    nb::object spread(In<u64> x, Windows pool) const {
        const std::size_t units = pool[0] * pool[1] * pool[2];
        expect(x.ndim() && pools(pool, units) && x.shape(x.ndim() - 1) * pool[3] * pool[3] == units);
        const auto out = Result<>::like(NumPy::get().uint64, x, units);
        {
            Release release;
            kernels.spread(x.data(), out.array.data(), units ? out.array.size() / units : 0,
                           {pool[0], pool[1], pool[2], pool[3]});
        }
        return out.object;
    }
    nb::object pool_sum(In<u64> x, Windows pool) const {
        expect(x.ndim() && pools(pool, x.shape(x.ndim() - 1)));
        const std::size_t units = x.shape(x.ndim() - 1);
        const auto out = Result<>::like(NumPy::get().uint64, x, units / (pool[3] * pool[3]));
        {
            Release release;
            kernels.pool_sum(x.data(), out.array.data(), units ? x.size() / units : 0,
                             {pool[0], pool[1], pool[2], pool[3]});
        }
        return out.object;
    }
    nb::tuple lifted_sums(InAny opened, In<u64> m, In<u64> b, int bits, bool with_public, In<u64> w_opened,
                          In<u64> w_mask, In<u64> m_mask, In<u64> b_mask) const {
        const LiftedRows x{compact(opened), m.data(), b.data(), bits, with_public};
        const MaskedRows w{w_opened.data(), w_mask.data()};
        expect(m.ndim() == 2 && m_mask.ndim() == 2 && bits >= 2 && bits <= 62 && holds(opened, bits < 17 ? 17 : bits));
        const std::size_t rows = m.shape(0), width = m.shape(1), units = m_mask.shape(1);
        expect(alike(opened, m) && alike(b, m) && m_mask.shape(0) == rows && units <= width);
        expect(alike(w_opened, m_mask) && alike(w_mask, m_mask) && alike(b_mask, m_mask));
        const Result<> total(nb::none(), NumPy::get().uint64, width), sums(nb::none(), NumPy::get().uint64, units);
        {
            Release release;
            kernels.lifted_sums(x, w, m_mask.data(), b_mask.data(), total.array.data(), sums.array.data(), rows, width,
                                units);
        }
        return nb::make_tuple(total.object, sums.object);
    }
    nb::object lifted_times(In<u64> E, In<u64> t, In<u64> factor, In<u64> m_factor, In<u64> b_factor,
                            const std::vector<std::size_t>& pool) const {
        const LiftedShape shape = lifted(E, factor, m_factor, pool);
        expect(alike(t, E) && alike(b_factor, m_factor));
        const auto out = Result<>::like(NumPy::get().uint64, m_factor);
        {
            Release release;
            kernels.lifted_times(E.data(), t.data(), factor.data(), m_factor.data(), b_factor.data(), out.array.data(),
                                 shape);
        }
        return out.object;
    }
    nb::object lifted_product(const std::tuple<In<u64>, In<u64>, In<u64>, In<u64>>& values, In<u64> opened, In<u64> mask,
                              In<u64> m_mask, In<u64> b_mask, bool with_public,
                              const std::vector<std::size_t>& pool) const {
        const auto& [E, t, m, b] = values;
        const LiftedShape shape = lifted(E, opened, m_mask, pool);
        expect(alike(t, E) && alike(m, E) && alike(b, E) && alike(mask, opened) && alike(b_mask, m_mask));
        const auto out = Result<>::like(NumPy::get().uint64, m_mask);
        {
            const u64 *Es = E.data(), *ts = t.data(), *ms = m.data(), *bs = b.data();
            Release release;
            kernels.lifted_product(Es, ts, ms, bs, opened.data(), mask.data(), m_mask.data(), b_mask.data(),
                                   out.array.data(), with_public, shape);
        }
        return out.object;
    }
    nb::tuple sign_lookup(InAny D, const std::vector<InAny>& tables, In<std::uint8_t> masks, int bits,
                          bool with_public) const {
        expect(bits >= 3 && bits <= 31 && holds(D, bits) && alike(D, masks) && tables.size() >= 2 && tables.size() <= 5);
        const int number = static_cast<int>(tables.size());
        std::vector<SignBlock> blocks;
        for (int j = 0, left = bits - 1; j < number; ++j) {
            const int width = (left + number - j - 1) / (number - j);
            left -= width;
            expect(width >= 1 && width <= 6 && holds(tables[j], 1 << width) && alike(D, tables[j]));
            blocks.push_back({compact(tables[j]), left, width, j ? 2 * j - 1 : -1, j + 1 < number ? 2 * j : -1});
        }
        const auto first = Result<Out<std::uint8_t>>::like(NumPy::get().uint8, D);
        const auto asked = Result<Out<std::uint8_t>>::like(NumPy::get().uint8, D);
        {
            Release release;
            kernels.sign_lookup(compact(D), blocks.data(), blocks.size(), masks.data(), first.array.data(),
                                asked.array.data(), D.size(), bits, with_public);
        }
        return nb::make_tuple(first.object, asked.object);
    }
    nb::object sign_combine(In<std::uint8_t> opened, In<std::uint8_t> masks, InAny products, In<std::uint8_t> first,
                            In<u64> rules, bool with_public) const {
        expect(alike(masks, opened) && alike(products, opened) && alike(first, opened));
        const int mask_bits = power_of_two(rules.size()) ? __builtin_ctzll(rules.size()) : 0;
        expect(mask_bits >= 2 && mask_bits <= 8 && rules.ndim() == 1);
        expect(products.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt));
        const std::uint8_t* words = opened.data();
        for (std::size_t i = 0; i < opened.size(); ++i) expect(!(words[i] >> mask_bits));
        const auto out = Result<Out<std::uint8_t>>::like(NumPy::get().uint8, opened);
        {
            Release release;
            kernels.sign_combine(words, masks.data(), compact(products), first.data(), rules.data(), out.array.data(),
                                 opened.size(), mask_bits, with_public);
        }
        return out.object;
    }
    bool has_aes() const { return ot::available(); }
    nb::object dcf_words(In<u64> cipher, In<u64> root0, In<u64> root1, InAny mask, int bits) const {
        expect(ot::available() && bits >= 2 && bits <= 63 && holds(mask, bits));
        const dcf::Units units = units_of(cipher, mask);
        expect(extends(root0, mask, 2) && extends(root1, mask, 2));
        nb::list lengths;
        for (std::size_t axis = 0; axis < mask.ndim(); ++axis) lengths.append(mask.shape(axis));
        lengths.append(dcf::levels(bits) + 1), lengths.append(2);
        const nb::object made = NumPy::get().empty(nb::tuple(lengths), NumPy::get().uint64);
        u64* words = target<Out<u64>>(made).data();
        {
            Release release;
            dcf::make_words(cipher.data(), units, root0.data(), root1.data(), compact(mask), words, bits);
        }
        return made;
    }
    nb::object dcf_share(In<u64> cipher, In<u64> root, In<u64> words, InAny D, int bits, bool with_public) const {
        expect(ot::available() && bits >= 2 && bits <= 63 && holds(D, bits) && extends(root, D, 2));
        const dcf::Units units = units_of(cipher, D);
        const std::size_t axes = D.ndim(), depth = dcf::levels(bits);
        expect(words.ndim() == axes + 2 && words.shape(axes) == depth + 1 && words.shape(axes + 1) == 2);
        expect(words.size() == D.size() * 2 * (depth + 1));
        const auto out = Result<Out<std::uint8_t>>::like(NumPy::get().uint8, D);
        {
            Release release;
            dcf::evaluate(cipher.data(), units, root.data(), words.data(), compact(D), out.array.data(), bits,
                          !with_public);
        }
        return out.object;
    }

  private:
    // Rows of values, each with a public key of AES.
    static dcf::Units units_of(const In<u64>& cipher, const InAny& values) {
        expect(values.ndim() >= 1 && shaped(cipher, {values.shape(0), 2}));
        return {values.shape(0), values.shape(0) ? values.size() / values.shape(0) : 0};
    }
    // A layer as the kernels take it.
    struct Fused {
        std::vector<Cosine> z;
        const u64* bias;
        HadamardLayer shape;
        const Trig* trig;

        explicit Fused(const LayerTuple& layer) {
            const auto& [phase, a, b, bits, scale, size, outputs, biases, pooled, weight, more] = layer;
            expect(a.ndim() == 2 && alike(phase, a) && alike(b, a) && holds(phase, bits));
            const std::size_t units = a.shape(1);
            const Windows pool = pooled ? *pooled : Windows{units, 1, 1, 1};
            expect(pools(pool, units) && power_of_two(size) && units / (pool[3] * pool[3]) <= size);
            expect(outputs >= 1 && outputs <= size && (!biases || shaped(*biases, {outputs})));
            if (!weight.empty())
                expect(weight.size() == 3 && shaped(weight[0], {units}) && alike(weight[1], a) && alike(weight[2], a));
            const auto at = [&](std::size_t i) { return std::get<9>(layer).empty() ? nullptr : std::get<9>(layer)[i].data(); };
            z.push_back({compact(phase), a.data(), b.data(), at(0), at(1), at(2)});
            const std::size_t each = weight.empty() ? 2 : 3, terms = 1 + more.size() / each;
            expect(more.size() % each == 0 && moves(terms, size));
            for (std::size_t i = 0; i < more.size(); i += each) {
                const In<u64>&x = more[i], &y = more[i + 1];
                if (each == 2) {
                    expect(alike(x, a) && alike(y, a));
                    z.push_back({compact(phase), x.data(), y.data(), nullptr, nullptr, nullptr});
                } else {
                    expect(shaped(x, {units}) && alike(y, a) && alike(more[i + 2], a));
                    z.push_back({compact(phase), a.data(), b.data(), x.data(), y.data(), more[i + 2].data()});
                }
            }
            bias = biases ? biases->data() : nullptr;
            shape = {a.shape(0), units, size, outputs, {pool[0], pool[1], pool[2], pool[3]}, terms};
            trig = &table(bits, scale);
        }
    };
    // An opening of (rows, outputs) as the kernels take it.
    static Opening opened(const OpeningTuple& opening, std::size_t rows, std::size_t outputs) {
        const auto& [mask, drop, bits, ties_up] = opening;
        expect(opens(drop, bits) && (!mask || (holds(*mask, bits) && shaped(*mask, {rows, outputs}))));
        return {mask ? mask->data() : nullptr, item_bytes(bits), drop, bits, ties_up};
    }
    static LiftedShape lifted(const In<u64>& E, const In<u64>& factor, const In<u64>& like,
                              const std::vector<std::size_t>& given) {
        expect(like.ndim() == 2);
        const std::size_t rows = like.shape(0), units = like.shape(1);
        const Windows pool = windows(given, units);
        expect(pools(pool, units));
        const std::size_t count = units / (pool[3] * pool[3]);
        expect(shaped(E, {count}) || shaped(E, {rows, count}));
        expect(alike(factor, like) || shaped(factor, {units}));
        return {rows, units, E.ndim() == 2 ? count : 0, factor.ndim() == 2 ? units : 0,
                {pool[0], pool[1], pool[2], pool[3]}};
    }
};

void bind_ot(nb::module_& parent);  // ot_module.cpp
void bind_oprf(nb::module_& parent);  // oprf_module.cpp
void bind_pump(nb::module_& parent);  // pump_module.cpp
void bind_rows(nb::module_& parent);  // rows_module.cpp

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // Python keeps kernels in caches until the process ends
    m.doc() = "Ring kernels compiled for several instruction sets.";
    m.def("levels", &levels, "Instruction sets this processor can run, fastest last.");
    m.def("keep_memory", &keep_memory, "Keep freed pages in the process.");
    bind_ot(m);
    bind_oprf(m);
    bind_pump(m);
    bind_rows(m);
    const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
    nb::class_<Bound>(m, "Kernels", "The kernels of one instruction set.")
        .def(nb::init<const std::string&>(), "level"_a)
        .def_ro("level", &Bound::level)
        .def_prop_ro("name", &Bound::name)
        .def_prop_ro("has_keystream", &Bound::has_keystream, "Whether they and this processor have vector AES.")
        .def("keystream", &Bound::keystream, "key"_a, "block"_a, "keep"_a, "size"_a)
        .def("matmul", &Bound::matmul, as_is("a"), as_is("b"), "out"_a = nb::none())
        .def("conv2d", &Bound::conv2d, as_is("x"), as_is("weight"), "stride"_a = 1, "padding"_a = 0, "groups"_a = 1,
             "dilation"_a = 1)
        .def("walsh_hadamard", &Bound::walsh_hadamard, as_is("x"), "out"_a = nb::none())
        .def("round_open", &Bound::round_open, as_is("x"), as_is("mask").none(), "drop"_a, "bits"_a, "ties_up"_a = true)
        .def("pack", &Bound::pack, as_is("values"), "bits"_a, "out"_a = nb::none())
        .def("unpack", &Bound::unpack, as_is("buffer"), "count"_a, "bits"_a)
        .def("unpack_sum", &Bound::unpack_sum, as_is("buffer"), as_is("values"), "bits"_a)
        .def("expand", &Bound::expand, as_is("keys"), as_is("offsets"), as_is("starts"), as_is("counts"),
             as_is("bits"), as_is("out"))
        .def("correct", &Bound::correct, as_is("keys"), as_is("offsets"), as_is("starts"), as_is("counts"),
             as_is("bits"), as_is("values"), as_is("out"), as_is("by_xor").none() = nb::none())
        .def("unpack_fields", &Bound::unpack_fields, as_is("buffer"), as_is("froms"), as_is("starts"), as_is("counts"),
             as_is("bits"), as_is("out"))
        .def("trig_words", &Bound::trig_words, as_is("phase"), "bits"_a, "scale"_a)
        .def("dither", &Bound::dither, as_is("x"), as_is("coins"), "drop"_a)
        .def("trig_combine", &Bound::trig_combine, as_is("phase"), as_is("cos_share"), as_is("sin_share"), "bits"_a,
             "scale"_a, as_is("cos_coefficients"), as_is("sin_coefficients"), as_is("harmonics"),
             "coefficient_shift"_a = 0)
        .def("rotate", &Bound::rotate, as_is("phase"), as_is("a"), as_is("b"), "bits"_a, "scale"_a, "cosine"_a,
             "sine"_a, "to_cosine"_a = nb::none(), "to_sine"_a = nb::none())
        .def("hadamard_cos", &Bound::hadamard_cos, as_is("layer"))
        .def("hadamard_cos_open", &Bound::hadamard_cos_open, as_is("layer"), as_is("opening"), "out"_a = nb::none())
        .def("hadamard_back", &Bound::hadamard_back, as_is("gradient"), as_is("opening"))
        .def("spread", &Bound::spread, as_is("x"), "pool"_a)
        .def("pool_sum", &Bound::pool_sum, as_is("x"), "pool"_a)
        .def("lifted_sums", &Bound::lifted_sums, as_is("opened"), as_is("m"), as_is("b"), "bits"_a, "with_public"_a,
             as_is("w_opened"), as_is("w_mask"), as_is("m_mask"), as_is("b_mask"))
        .def("lifted_times", &Bound::lifted_times, as_is("E"), as_is("t"), as_is("factor"), as_is("m_factor"),
             as_is("b_factor"), "pool"_a = nb::make_tuple())
        .def("lifted_product", &Bound::lifted_product, as_is("lifted"), as_is("opened"), as_is("mask"),
             as_is("m_mask"), as_is("b_mask"), "with_public"_a, "pool"_a = nb::make_tuple())
        .def("sign_lookup", &Bound::sign_lookup, as_is("D"), as_is("tables"), as_is("masks"), "bits"_a, "with_public"_a)
        .def("sign_combine", &Bound::sign_combine, as_is("opened"), as_is("masks"), as_is("products"), as_is("first"),
             as_is("rules"), "with_public"_a)
        .def_prop_ro("has_aes", &Bound::has_aes, "Whether this processor has AES instructions.")
        .def("dcf_words", &Bound::dcf_words, as_is("cipher"), as_is("root0"), as_is("root1"), as_is("mask"), "bits"_a)
        .def("dcf_share", &Bound::dcf_share, as_is("cipher"), as_is("root"), as_is("words"), as_is("D"), "bits"_a,
             "with_public"_a);
}
