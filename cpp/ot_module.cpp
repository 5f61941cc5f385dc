// The Python side of the oblivious transfer's loops, with the interface of hdcos.offline.ot.reference. Shapes follow from
// what was planned, so nothing is validated here.
#include "ot.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>

namespace nb = nanobind;
using namespace nb::literals;
namespace ob = hdcos::ot;
using ob::u64;
using ob::u8;

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using Release = nb::gil_scoped_release;

// A new array for a result.
static nb::object made(const char* dtype, std::size_t rows, std::size_t columns) {
    return nb::module_::import_("numpy").attr("empty")(nb::make_tuple(rows, columns), dtype);
}
template <class T>
static T* memory(const nb::object& array) {
    return nb::cast<Out<T>>(array).data();
}

static nb::object key_schedule(In<u8> keys) {
    const std::size_t count = keys.size() / 16;
    const nb::object schedules = made("uint8", count, ob::SCHEDULE_BYTES);
    ob::key_schedule(keys.data(), memory<u8>(schedules), count);
    return schedules;
}

static nb::tuple combine(In<u8> schedules, std::size_t blocks, u64 first, std::size_t counters, bool whole) {
    const nb::object u = whole ? made("uint8", blocks, 16 * counters) : nb::none();
    const nb::object v = made("uint8", ob::FIELD_BITS * blocks, 16 * counters);
    u8 *sums = whole ? memory<u8>(u) : nullptr, *out = memory<u8>(v);
    {
        Release release;
        ob::combine(schedules.data(), blocks, first, counters, sums, out);
    }
    return nb::make_tuple(u, v);
}

static nb::object transpose(In<u8> rows) {
    const std::size_t bytes = rows.size() / 128;
    const nb::object out = made("uint8", 8 * bytes, 16);
    u8* data = memory<u8>(out);
    {
        Release release;
        ob::transpose(rows.data(), bytes, data);
    }
    return out;
}

static nb::object send(In<u8> q, In<u8> delta, In<u8> schedule, In<u64> vectors, std::optional<In<u64>> signs,
                       Out<u64> sums, std::size_t first, std::size_t fold, u64 index, int bit, bool negative, int coarse) {
    const ob::Piece piece{first, q.shape(0), vectors.shape(0), fold, vectors.shape(1), index, bit, negative, coarse};
    const nb::object messages = made("uint64", piece.count, piece.length);
    const u64* flips = signs ? signs->data() : nullptr;
    u64* out = memory<u64>(messages);
    {
        Release release;
        ob::send(q.data(), delta.data(), schedule.data(), vectors.data(), flips, piece, out, sums.data());
    }
    return messages;
}

static void receive(In<u8> t, In<u8> schedule, In<u64> choices, In<u64> messages, Out<u64> sums, std::size_t first,
                    std::size_t fold, u64 index, int bit, int coarse) {
    const ob::Piece piece{first, t.shape(0), 1, fold, messages.shape(1), index, bit, false, coarse};
    Release release;
    ob::receive(t.data(), schedule.data(), choices.data(), messages.data(), piece, sums.data());
}

void bind_ot(nb::module_& parent) {
    nb::module_ m = parent.def_submodule("ot", "Loops of oblivious transfer, with AES instructions.");
    m.def("available", &ob::available);
    m.def("key_schedule", &key_schedule, "keys"_a);
    m.def("combine", &combine, "keys"_a, "blocks"_a, "first"_a, "counters"_a, "whole"_a);
    m.def("transpose", &transpose, "rows"_a);
    m.def("send", &send, "q"_a, "delta"_a, "key"_a, "vectors"_a, "signs"_a.none(), "sums"_a, "first"_a, "fold"_a,
          "index"_a, "bit"_a, "negative"_a, "coarse"_a = 0);
    m.def("receive", &receive, "t"_a, "key"_a, "choices"_a, "messages"_a, "sums"_a, "first"_a, "fold"_a, "index"_a,
          "bit"_a, "coarse"_a = 0);
}
