// Moves the bytes of a TLS connection in both directions, with no lock of Python's held: see hdcos/link/pump.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hdcos {

// What is called of OpenSSL, in the library that Python's own ssl module has loaded.
struct OpenSsl {
    int (*SSL_read_ex)(void*, void*, std::size_t, std::size_t*);
    int (*SSL_write_ex)(void*, const void*, std::size_t, std::size_t*);
    int (*SSL_get_error)(const void*, int);
    void* (*SSL_get_ex_data)(const void*, int);
    void* (*SSL_get_rbio)(const void*);
    void* (*SSL_get_wbio)(const void*);
    int (*BIO_write)(void*, const void*, int);
    long (*BIO_ctrl)(void*, int, long, void*);
    std::size_t (*BIO_ctrl_pending)(void*);
    unsigned long (*ERR_peek_last_error)();
    const char* (*ERR_reason_error_string)(unsigned long);
    void (*ERR_clear_error)();

    // The functions of the library that a module was linked with; false if one of them is not to be found.
    bool find(const char* module);
};

// Why a call returned.
enum class Moved { all, silent, ended, failed, broken, interrupted, busy };

struct Piece {
    const std::uint8_t* data;
    std::size_t size;
};

class Pump {
public:
    Pump(const OpenSsl& calls, void* ssl, int socket, int spin)
        : calls_(calls), ssl_(ssl), in_(calls.SSL_get_rbio(ssl)), out_(calls.SSL_get_wbio(ssl)), socket_(socket),
          spin_(spin), buffer_(READ_BYTES), record_(RECORD_BYTES) {}

    // What is sent next, in full records however it is cut into pieces, and some of it now; all that was queued before
    // is out. The memory must stay.
    void queue(std::vector<Piece> pieces);
    // At least `least` bytes, and those that are there already, up to `size`; what is queued goes out meanwhile.
    Moved read(std::uint8_t* target, std::size_t size, std::size_t least, double timeout_s, std::size_t& got);
    // Everything that is queued; what arrives meanwhile is kept.
    Moved flush(double timeout_s);

    std::uint64_t sent() const { return sent_; }
    std::uint64_t taken() const { return taken_; }
    int end_error() const { return end_error_; }           // of the socket, where it has ended; 0 if the peer closed it
    int cut_error() const { return cut_error_; }           // why nothing more can be sent, if so
    const std::string& reason() const { return reason_; }  // of TLS, where it is broken

private:
    static constexpr std::size_t RECORD_BYTES = 16384, RECORDS = 8, READ_BYTES = 1 << 18, BACKLOG_BYTES = 1 << 23;

    bool sending();
    bool push();
    Piece next_record();
    void cut(int error);
    int receive(int flags, std::size_t most, int looks = 1);
    Moved decrypt(std::uint8_t* target, std::size_t size, std::size_t& got);
    Moved wait_to_receive(double timeout_s, std::size_t announced);
    Moved wait(int events, double timeout_s);

    OpenSsl calls_;
    void *ssl_, *in_, *out_;
    int socket_, spin_;
    std::vector<std::uint8_t> buffer_;
    std::vector<Piece> pieces_;
    std::size_t next_ = 0, begun_ = 0;  // the piece that is sent next, and how much of it is sent already
    std::vector<std::uint8_t> record_;  // of several pieces
    std::size_t offset_ = 0;  // of what is encrypted: so much of it is sent
    std::uint64_t sent_ = 0, taken_ = 0;
    double patience_ = -1;  // of the socket: how long it waits itself
    int end_error_ = 0, cut_error_ = 0;
    unsigned vain_ = 0;  // sleeps since a look paid
    bool over_ = false;
    std::string reason_;
};

}  // namespace hdcos
