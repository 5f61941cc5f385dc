// Which instruction sets were built and which of them this processor can run.
#pragma once

#include "kernels.h"

#include <string>
#include <vector>

namespace hdcos {

// From the most portable to the fastest.
std::vector<std::string> levels();

// The kernels of a level; std::invalid_argument where the host cannot run it.
const Kernels& kernels_of(const std::string& level);

// A name for people, such as "x86-64-v4".
std::string title_of(const std::string& level);

}  // namespace hdcos
