// CUDA kernels on one thread of this processor, for tests: the threads of a block are fibres that take turns at
// barriers, blocks run one after the other. Odd blocks take their threads in the opposite order, so that what depends
// on the order shows. A barrier that some threads of a block do not reach is an error here.
#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#define __global__
#define __device__ static
#define __forceinline__ inline
#define __shared__ static
#define __clzll __builtin_clzll

struct Place {
    unsigned x, y, z;
};
static Place threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

using Word = std::uint64_t;
constexpr std::size_t STACK_BYTES = 1 << 16;
constexpr int MOST_ARGUMENTS = 48;

struct Fibre {
    ucontext_t context;
    jmp_buf place;
    std::vector<char> stack = std::vector<char>(STACK_BYTES);
    bool begun = false, ended = false;
};

static std::vector<Fibre> fibres;
static jmp_buf scheduler;
static unsigned running;
static void* kernel;
static const Word* arguments;
static int number;

// A pointer or a number of 64 bits is passed in the same way, so a function of words stands for every kernel.
template <std::size_t... Index>
void call(std::index_sequence<Index...>) {
    reinterpret_cast<void (*)(decltype(static_cast<void>(Index), Word{})...)>(kernel)(arguments[Index]...);
}

template <int Count>
void call_with() {
    if constexpr (Count <= MOST_ARGUMENTS) {
        if (number == Count) call(std::make_index_sequence<Count>());
        else call_with<Count + 1>();
    }
}

static void wait_for_others() {
    if (!_setjmp(fibres[running].place)) _longjmp(scheduler, 1);
}

// A fibre lives as long as the process, and takes part in one block after the other.
static void enter() {
    for (;;) {
        call_with<1>();
        fibres[running].ended = true;
        wait_for_others();
    }
}

// Let a thread go on to its next barrier, or to its end. Jumps make no system calls, unlike switches of contexts.
static void resume(Fibre& fibre) {
    if (_setjmp(scheduler)) return;
    if (fibre.begun) _longjmp(fibre.place, 1);
    fibre.begun = true;
    ucontext_t here;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = STACK_BYTES;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, enter, 0);
    swapcontext(&here, &fibre.context);
}

static int run_block(unsigned threads, bool backwards) {
    for (unsigned i = 0; i < threads; ++i) fibres[i].ended = false;
    for (;;) {
        unsigned ended = 0;
        for (unsigned i = 0; i < threads; ++i) {
            running = backwards ? threads - 1 - i : i;
            threadIdx = {running, 0, 0};
            resume(fibres[running]);
            ended += fibres[running].ended;
        }
        if (ended == threads) return 0;
        if (ended) return 1;
    }
}

}  // namespace emulation

#define __syncthreads emulation::wait_for_others

static unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
    const unsigned long long before = *to;
    *to += value;
    return before;
}

// 0, or 1 if threads of a block disagreed about a barrier.
extern "C" int emulate(void* kernel, const std::uint64_t* arguments, int number, unsigned x, unsigned y, unsigned z,
                       unsigned threads) {
    using namespace emulation;
    if (fibres.size() < threads) fibres = std::vector<Fibre>(threads);
    emulation::kernel = kernel, emulation::arguments = arguments, emulation::number = number;
    gridDim = {x, y, z}, blockDim = {threads, 1, 1};
    bool backwards = false;
    for (unsigned k = 0; k < z; ++k) {
        for (unsigned j = 0; j < y; ++j) {
            for (unsigned i = 0; i < x; ++i) {
                blockIdx = {i, j, k};
                if (run_block(threads, backwards)) return 1;
                backwards = !backwards;
            }
        }
    }
    return 0;
}
