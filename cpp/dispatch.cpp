#include "dispatch.h"
#include "keystream.h"

#include <stdexcept>

namespace hdcos {

static std::vector<const Kernels*> runnable() {
    std::vector<const Kernels*> found{&baseline::kernels};
#ifdef HDCOS_X86_LEVELS
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (v3) found.push_back(&v3::kernels);
    if (v4) found.push_back(&v4::kernels);
#endif
    return found;
}

bool has_keystream() {
#ifdef HDCOS_X86_LEVELS
    __builtin_cpu_init();
    return __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
    return false;
#endif
}

std::vector<std::string> levels() {
    std::vector<std::string> names;
    for (const Kernels* kernels : runnable()) names.emplace_back(kernels->name);
    return names;
}

const Kernels& kernels_of(const std::string& level) {
    for (const Kernels* kernels : runnable())
        if (level == kernels->name) return *kernels;
    throw std::invalid_argument("this processor or build has no kernels for " + level);
}

std::string title_of(const std::string& level) {
#if defined(__x86_64__)
    return level == "baseline" ? "x86-64" : "x86-64-" + level;
#elif defined(__aarch64__)
    return "aarch64";
#else
    return level;
#endif
}

}  // namespace hdcos
