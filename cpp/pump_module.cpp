// The Python side of the pump: hdcos/link/pump.py says what it is and where its pointers come from.
#include "pump.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include <sys/socket.h>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

namespace nb = nanobind;
using namespace nb::literals;
using namespace hdcos;
using Release = nb::gil_scoped_release;

namespace {

// The memory of a Python object, for as long as this lives.
class Lent {
public:
    Lent(nb::handle object, int flags) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    Lent(Lent&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent() {
        if (view_.obj != nullptr) PyBuffer_Release(&view_);
    }
    std::uint8_t* data() const { return static_cast<std::uint8_t*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }

private:
    Py_buffer view_{};
};

double seconds(const nb::object& timeout_s) { return timeout_s.is_none() ? -1.0 : nb::cast<double>(timeout_s); }

// The pointer that an object of the ssl module has behind `before` fields of one word each.
void* field(nb::handle object, std::size_t before) {
    struct Head {
        PyObject head;
        void* fields[2];
    };
    return reinterpret_cast<const Head*>(object.ptr())->fields[before];
}

class Pumping {
public:
    Pumping(const OpenSsl& calls, nb::object tls, void* ssl, int socket, int spin)
        : socket_(socket), tls_(std::move(tls)), pump_(calls, ssl, socket, spin) {}
    Pumping(const Pumping&) = delete;

    int queue(nb::sequence buffers) {
        const std::unique_lock<std::mutex> mine(used_, std::try_to_lock);
        if (!mine || closed_) return static_cast<int>(Moved::busy);
        std::vector<Lent> lent;
        std::vector<Piece> found;
        for (nb::handle buffer : buffers) {
            lent.emplace_back(buffer, PyBUF_SIMPLE);
            found.push_back({lent.back().data(), lent.back().size()});
        }
        lent_.swap(lent);  // what was queued before is let go of when the pump no longer knows it
        {
            Release release;
            pump_.queue(std::move(found));
        }
        return static_cast<int>(Moved::all);
    }

    nb::tuple read(nb::handle view, bool whole, nb::object timeout_s) {
        const std::unique_lock<std::mutex> mine(used_, std::try_to_lock);
        if (!mine || closed_) return nb::make_tuple(static_cast<int>(Moved::busy), 0);
        const Lent target(view, PyBUF_WRITABLE);
        const double limit_s = seconds(timeout_s);
        std::size_t got = 0;
        Moved moved;
        {
            Release release;
            moved = pump_.read(target.data(), target.size(), std::min<std::size_t>(whole ? target.size() : 1, target.size()), limit_s, got);
        }
        return nb::make_tuple(static_cast<int>(moved), got);
    }

    int flush(nb::object timeout_s) {
        const std::unique_lock<std::mutex> mine(used_, std::try_to_lock);
        if (!mine || closed_) return static_cast<int>(Moved::busy);
        const double limit_s = seconds(timeout_s);
        Moved moved;
        {
            Release release;
            moved = pump_.flush(limit_s);
        }
        if (moved == Moved::all || moved == Moved::failed) lent_.clear();
        return static_cast<int>(moved);
    }

    // From any thread: when this returns, nobody touches the socket any more. One that waits in it finds it ended.
    void close() {
        {
            const std::unique_lock<std::mutex> mine(used_, std::try_to_lock);
            if (mine) {
                closed_ = true;
                return;
            }
        }
        Release release;
        shutdown(socket_, SHUT_RDWR);
        const std::lock_guard<std::mutex> mine(used_);
        closed_ = true;
    }

    const Pump& pump() const { return pump_; }

private:
    std::mutex used_;  // by one thread at a time, which does not wait for another
    bool closed_ = false;
    int socket_;
    nb::object tls_;
    Pump pump_;
    std::vector<Lent> lent_;
};

// None where OpenSSL is not to be found, or the objects are not what they are taken for.
std::unique_ptr<Pumping> open_pump(const std::string& module, nb::object tls, nb::object incoming, int socket,
                                   int spin) {
    OpenSsl calls{};
    if (!calls.find(module.c_str())) return nullptr;
    void* ssl = field(tls, 1);
    if (ssl == nullptr || calls.SSL_get_ex_data(ssl, 0) != tls.ptr()) return nullptr;
    if (calls.SSL_get_rbio(ssl) != field(incoming, 0)) return nullptr;
    return std::make_unique<Pumping>(calls, std::move(tls), ssl, socket, spin);
}

}  // namespace

void bind_pump(nb::module_& parent) {
    nb::class_<Pumping>(parent, "Pump", "Moves the bytes of a TLS connection; see hdcos.link.pump.")
        .def("queue", &Pumping::queue, "buffers"_a)
        .def("read", &Pumping::read, "view"_a, "whole"_a, "timeout_s"_a.none())
        .def("flush", &Pumping::flush, "timeout_s"_a.none())
        .def("close", &Pumping::close)
        .def_prop_ro("sent", [](const Pumping& self) { return self.pump().sent(); })
        .def_prop_ro("taken", [](const Pumping& self) { return self.pump().taken(); })
        .def_prop_ro("end_error", [](const Pumping& self) { return self.pump().end_error(); })
        .def_prop_ro("cut_error", [](const Pumping& self) { return self.pump().cut_error(); })
        .def_prop_ro("reason", [](const Pumping& self) { return self.pump().reason(); });
    parent.def("open_pump", &open_pump, "module"_a, "tls"_a, "incoming"_a, "socket"_a, "spin"_a,
               nb::sig("def open_pump(module: str, tls: object, incoming: object, socket: int, spin: int) -> Pump | None"));
}
