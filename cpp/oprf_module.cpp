// The Python side of a private join's loops, with the interface of hdcos.join.reference. Shapes are the caller's business,
// except those that the other owner could have chosen: what bins and tables hold is made here.
#include "oprf.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

namespace nb = nanobind;
using namespace nb::literals;
namespace op = hdcos::oprf;
using op::i64;
using op::u64;
using op::u8;

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using Release = nb::gil_scoped_release;

static void need(bool holds, const char* what) {
    if (!holds) throw nb::value_error(what);
}

static nb::object made(std::size_t rows, std::size_t columns) {
    return nb::module_::import_("numpy").attr("empty")(nb::make_tuple(rows, columns), "uint8");
}
static u8* memory(const nb::object& array) { return nb::cast<Out<u8>>(array).data(); }

static nb::tuple mask(In<u8> zero, In<u8> one, In<u8> code, In<u8> items, u64 first) {
    const std::size_t count = items.size() / op::ITEM_BYTES;
    need(count % 128 == 0, "rows come in groups of 128");
    const nb::object t = made(count, op::ROW_BYTES), u = made(count, op::ROW_BYTES);
    u8 *t_data = memory(t), *u_data = memory(u);
    {
        Release release;
        op::mask(zero.data(), one.data(), code.data(), items.data(), first, count, t_data, u_data);
    }
    return nb::make_tuple(t, u);
}

static nb::object unmask(In<u8> seeds, In<u8> secret, In<u8> u, u64 first) {
    const std::size_t count = u.size() / op::ROW_BYTES;
    need(count % 128 == 0, "rows come in groups of 128");
    const nb::object q = made(count, op::ROW_BYTES);
    u8* data = memory(q);
    {
        Release release;
        op::unmask(seeds.data(), secret.data(), u.data(), first, count, data);
    }
    return q;
}

static nb::object evaluate(In<u8> q, In<u8> secret, In<u8> code, In<u8> items, In<u64> bins, In<u8> salt,
                           In<u8> person) {
    const nb::object out = made(bins.size(), op::VALUE_BYTES);
    u8* data = memory(out);
    {
        Release release;
        op::evaluate(q.data(), secret.data(), code.data(), items.data(), bins.data(), salt.data(), person.data(),
                     bins.size(), data);
    }
    return out;
}

static nb::object hash_rows(In<u8> rows, In<u64> numbers, In<u8> salt, In<u8> person, std::size_t size) {
    const std::size_t count = numbers.size(), width = count ? rows.size() / count : 0;
    need(width <= op::MOST_HASHED && size <= 64, "a row to be hashed has at most 96 bytes");
    const nb::object out = made(count, size);
    u8* data = memory(out);
    {
        Release release;
        op::hash_rows(rows.data(), width, numbers.data(), salt.data(), person.data(), count, size, data);
    }
    return out;
}

static bool place(In<u64> bins, Out<i64> table, u64 seed, u64 most) {
    Release release;
    return op::place(bins.data(), bins.size() / 3, table.data(), seed, most);
}

void bind_oprf(nb::module_& parent) {
    nb::module_ m = parent.def_submodule("oprf", "Loops of a private join, with AES instructions.");
    m.def("mask", &mask, "zero"_a, "one"_a, "code"_a, "items"_a, "first"_a);
    m.def("unmask", &unmask, "seeds"_a, "secret"_a, "u"_a, "first"_a);
    m.def("evaluate", &evaluate, "q"_a, "secret"_a, "code"_a, "items"_a, "bins"_a, "salt"_a, "person"_a);
    m.def("hash_rows", &hash_rows, "rows"_a, "numbers"_a, "salt"_a, "person"_a, "size"_a);
    m.def("place", &place, "bins"_a, "table"_a, "seed"_a, "most"_a);
}
