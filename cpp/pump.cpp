#include "pump.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace hdcos {

// Of OpenSSL's headers, which need not be installed.
static constexpr int SSL_ERROR_WANT_READ = 2, SSL_ERROR_ZERO_RETURN = 6;
static constexpr int BIO_CTRL_RESET = 1, BIO_CTRL_INFO = 3;
// After LUCK looks in vain only every RETRY-th time, and again always after one that paid: as in hdcos/link/tls.py.
static constexpr unsigned LUCK = 4, RETRY = 64;

template <class Function>
static bool look_up(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool OpenSsl::find(const char* module) {
    void* library = dlopen(module, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
    // The handle stays open: the module does, too.
    return look_up(library, "SSL_read_ex", SSL_read_ex) && look_up(library, "SSL_write_ex", SSL_write_ex) &&
           look_up(library, "SSL_get_error", SSL_get_error) && look_up(library, "SSL_get_ex_data", SSL_get_ex_data) &&
           look_up(library, "SSL_get_rbio", SSL_get_rbio) && look_up(library, "SSL_get_wbio", SSL_get_wbio) &&
           look_up(library, "BIO_write", BIO_write) && look_up(library, "BIO_ctrl", BIO_ctrl) &&
           look_up(library, "BIO_ctrl_pending", BIO_ctrl_pending) &&
           look_up(library, "ERR_peek_last_error", ERR_peek_last_error) &&
           look_up(library, "ERR_reason_error_string", ERR_reason_error_string) &&
           look_up(library, "ERR_clear_error", ERR_clear_error);
}

void Pump::queue(std::vector<Piece> pieces) {
    if (cut_error_) return;  // half a record may have gone: another behind it would be garbage. `flush` says why
    pieces_ = std::move(pieces);
    const auto is_empty = [](const Piece& piece) { return piece.size == 0; };
    pieces_.erase(std::remove_if(pieces_.begin(), pieces_.end(), is_empty), pieces_.end());
    next_ = begun_ = 0;
    push();
}

bool Pump::sending() { return next_ < pieces_.size() || calls_.BIO_ctrl_pending(out_) > 0; }

// Nothing more can be sent; what arrived before may still be read.
void Pump::cut(int error) {
    cut_error_ = error;
    pieces_.clear();
    next_ = begun_ = offset_ = 0;
    calls_.BIO_ctrl(out_, BIO_CTRL_RESET, 0, nullptr);
}

// What goes into the next record: as it lies if it lies in one piece.
Piece Pump::next_record() {
    std::size_t held = 0;
    while (next_ < pieces_.size() && held < RECORD_BYTES) {
        const Piece& piece = pieces_[next_];
        const std::uint8_t* data = piece.data + begun_;
        const std::size_t size = std::min(piece.size - begun_, RECORD_BYTES - held);
        begun_ += size;
        if (begun_ == piece.size) {
            ++next_;
            begun_ = 0;
        }
        if (held == 0 && (size == RECORD_BYTES || next_ == pieces_.size())) return {data, size};
        std::memcpy(record_.data() + held, data, size);
        held += size;
    }
    return {record_.data(), held};
}

// Encrypt some records if none is waiting, and send what the socket takes now. True if something moved.
bool Pump::push() {
    if (calls_.BIO_ctrl_pending(out_) == 0) {
        if (next_ == pieces_.size()) return false;
        calls_.ERR_clear_error();
        for (std::size_t count = 0, done = 0; count < RECORDS && next_ < pieces_.size(); ++count) {
            const Piece record = next_record();
            if (calls_.SSL_write_ex(ssl_, record.data, record.size, &done) != 1) {
                calls_.ERR_clear_error();
                cut(EPIPE);  // TLS was ended, or broke while it was read
                return true;
            }
        }
    }
    char* data = nullptr;
    const auto size = static_cast<std::size_t>(calls_.BIO_ctrl(out_, BIO_CTRL_INFO, 0, &data));
    const ssize_t done = send(socket_, data + offset_, size - offset_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
        cut(errno);
        return true;
    }
    sent_ += static_cast<std::uint64_t>(done);
    offset_ += static_cast<std::size_t>(done);
    if (offset_ == size) {
        calls_.BIO_ctrl(out_, BIO_CTRL_RESET, 0, nullptr);
        offset_ = 0;
    }
    return true;
}

// Take what has arrived, or what arrives in time, into TLS. The number of the look that found it or the end, or 0: then
// errno says why the last one did not. A signal ends the looking, for its handler to run.
int Pump::receive(int flags, std::size_t most, int looks) {
    for (int look = 1; look <= looks; ++look) {
        const ssize_t size = recv(socket_, buffer_.data(), most, flags);
        if (size < 0 && errno == EINTR) return 0;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) continue;
        if (size > 0) {
            taken_ += static_cast<std::uint64_t>(size);
            if (calls_.BIO_write(in_, buffer_.data(), static_cast<int>(size)) != size) {
                end_error_ = ENOMEM;
                over_ = true;
            }
        } else {
            end_error_ = size < 0 ? errno : 0;
            over_ = true;
        }
        return look;
    }
    return 0;
}

Moved Pump::decrypt(std::uint8_t* target, std::size_t size, std::size_t& got) {
    if (!reason_.empty()) return Moved::broken;
    while (got < size) {
        std::size_t more = 0;
        calls_.ERR_clear_error();
        if (calls_.SSL_read_ex(ssl_, target + got, size - got, &more) == 1) {
            got += more;
            continue;
        }
        const int why = calls_.SSL_get_error(ssl_, 0);
        if (why == SSL_ERROR_WANT_READ) break;
        if (why == SSL_ERROR_ZERO_RETURN) {
            over_ = true;
            break;
        }
        const char* text = calls_.ERR_reason_error_string(calls_.ERR_peek_last_error());
        reason_ = text == nullptr ? "unknown reason" : text;
        calls_.ERR_clear_error();
        return Moved::broken;
    }
    return Moved::all;
}

Moved Pump::read(std::uint8_t* target, std::size_t size, std::size_t least, double timeout_s, std::size_t& got) {
    got = 0;
    while (true) {
        if (const Moved moved = decrypt(target, size, got); moved != Moved::all) return moved;
        if (got >= least) return Moved::all;
        if (over_) return Moved::ended;
        Moved moved = Moved::all;
        if (sending()) {
            const bool out = push();
            if (!receive(MSG_DONTWAIT, READ_BYTES) && !out) moved = wait(POLLIN | POLLOUT, timeout_s);
        } else {
            moved = wait_to_receive(timeout_s, least - got);
        }
        if (moved != Moved::all) return moved;
    }
}

Moved Pump::flush(double timeout_s) {
    while (sending()) {
        if (push()) continue;
        const bool room = !over_ && calls_.BIO_ctrl_pending(in_) < BACKLOG_BYTES;
        if (room && receive(MSG_DONTWAIT, READ_BYTES)) continue;
        if (const Moved moved = wait((room ? POLLIN : 0) | POLLOUT, timeout_s); moved != Moved::all) return moved;
    }
    return cut_error_ ? Moved::failed : Moved::all;
}

// With nothing to send: look again and again for a moment, as long as that tends to pay, then sleep. Of many bytes
// that are sure to come as many are awaited as OpenSSL may still lack.
Moved Pump::wait_to_receive(double timeout_s, std::size_t announced) {
    int flags = 0;
    std::size_t most = READ_BYTES;
    if (announced > 4 * RECORD_BYTES) {
        flags = MSG_WAITALL;
        most = std::min(announced - 2 * RECORD_BYTES, READ_BYTES);
    } else if (vain_ <= LUCK || vain_ % RETRY == 0) {
        const int look = receive(MSG_DONTWAIT, READ_BYTES, 1 + spin_);
        if (look > 1) vain_ = 0;
        if (look) return Moved::all;
        if (errno == EINTR) return Moved::interrupted;
    }
    ++vain_;
    if (timeout_s != patience_) {
        timeval limit{};  // zero is none
        if (timeout_s >= 0) {
            const auto microseconds = static_cast<long>(std::max(1.0, std::round(timeout_s * 1e6)));
            limit.tv_sec = microseconds / 1000000;
            limit.tv_usec = microseconds % 1000000;
        }
        setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        patience_ = timeout_s;
    }
    if (receive(flags, most)) return Moved::all;
    return errno == EINTR ? Moved::interrupted : Moved::silent;
}

Moved Pump::wait(int events, double timeout_s) {
    pollfd watched{socket_, static_cast<short>(events), 0};
    const int ready = poll(&watched, 1, timeout_s < 0 ? -1 : static_cast<int>(std::ceil(timeout_s * 1e3)));
    if (ready > 0) return Moved::all;
    return ready < 0 && errno == EINTR ? Moved::interrupted : Moved::silent;
}

}  // namespace hdcos
