// The Python side of the oblivious transfer's loops. Shapes are validated in Python; here only memory is handed over.
#include "oblivious.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

namespace nb = nanobind;
namespace ob = hdcos::oblivious;
using ob::u64;
using ob::u8;

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using Release = nb::gil_scoped_release;

static void key_schedule(In<u8> keys, Out<u8> schedules) {
    ob::key_schedule(keys.data(), schedules.data(), keys.size() / 16);
}

static void combine(In<u8> schedules, u64 first, nb::object u, Out<u8> v) {
    const std::size_t blocks = schedules.size() / (ob::LEAVES * ob::SCHEDULE_BYTES);
    const std::size_t counters = v.size() / (16 * ob::FIELD_BITS * blocks);
    u8* sums = u.is_none() ? nullptr : nb::cast<Out<u8>>(u).data();
    const u8* keys = schedules.data();
    u8* out = v.data();
    Release release;
    ob::combine(keys, blocks, first, counters, sums, out);
}

static void transpose(In<u8> rows, Out<u8> out) {
    const std::size_t bytes = rows.size() / 128;
    Release release;
    ob::transpose(rows.data(), bytes, out.data());
}

static void send(In<u8> q, In<u8> delta, In<u8> schedule, In<u64> vectors, nb::object signs, Out<u64> messages,
                 Out<u64> sums, std::size_t first, std::size_t fold, u64 index, int bit, bool negative,
                 int coarse) {
    const ob::Piece piece{first, q.shape(0), vectors.shape(0), fold, vectors.shape(1), index, bit, negative, coarse};
    const u64* flips = signs.is_none() ? nullptr : nb::cast<In<u64>>(signs).data();
    Release release;
    ob::send(q.data(), delta.data(), schedule.data(), vectors.data(), flips, piece, messages.data(), sums.data());
}

static void receive(In<u8> t, In<u8> schedule, In<u64> choices, In<u64> messages, Out<u64> sums, std::size_t first,
                    std::size_t fold, u64 index, int bit, int coarse) {
    const ob::Piece piece{first, t.shape(0), 1, fold, messages.shape(1), index, bit, false, coarse};
    Release release;
    ob::receive(t.data(), schedule.data(), choices.data(), messages.data(), piece, sums.data());
}

void bind_oblivious(nb::module_& parent) {
    nb::module_ m = parent.def_submodule("oblivious", "Loops of oblivious transfer, with AES instructions.");
    m.def("available", &ob::available);
    m.def("key_schedule", &key_schedule);
    m.def("combine", &combine, nb::arg("schedules"), nb::arg("first"), nb::arg("u").none(), nb::arg("v"));
    m.def("transpose", &transpose);
    m.def("send", &send, nb::arg("q"), nb::arg("delta"), nb::arg("schedule"), nb::arg("vectors"),
          nb::arg("signs").none(), nb::arg("messages"), nb::arg("sums"), nb::arg("first"), nb::arg("fold"),
          nb::arg("index"), nb::arg("bit"), nb::arg("negative"), nb::arg("coarse"));
    m.def("receive", &receive);
}
