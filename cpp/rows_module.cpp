// Rows of a file, read one by one: hdcos/party/mapped.py says when.
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Starts = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<std::uint64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

bool read_whole(int file, std::uint8_t* to, std::size_t size, off_t from) {
    while (size > 0) {
        const ssize_t read = pread(file, to, size, from);
        if (read < 0 && errno == EINTR) continue;
        if (read <= 0) {
            if (read == 0) errno = ENODATA;  // it has become shorter
            return false;
        }
        to += read;
        from += read;
        size -= static_cast<std::size_t>(read);
    }
    return true;
}

// Row i of `rows` from the word `starts[i]` of a file on. No page of the file becomes one of the process.
void read_rows(int file, const Starts& starts, const Rows& rows) {
    if (starts.shape(0) != rows.shape(0)) throw nb::type_error("as many rows as places");
    const std::size_t width = 8 * rows.shape(1);
    auto* to = reinterpret_cast<std::uint8_t*>(rows.data());
    bool whole = true;
    {
        const nb::gil_scoped_release release;
        for (std::size_t row = 0; whole && row < starts.shape(0); ++row)
            whole = read_whole(file, to + row * width, width, static_cast<off_t>(8 * starts.data()[row]));
    }
    if (!whole) {
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

}  // namespace

void bind_rows(nb::module_& parent) {
    parent.def("read_rows", &read_rows, "file"_a, nb::arg("starts").noconvert(), nb::arg("rows").noconvert(),
               "Rows of words from these places of a file.");
}
