// Large buffers without exceptions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "deltawire/status.h"

namespace deltawire {

// Uninitialised bytes; OutOfMemory instead of an exception.
Result<std::shared_ptr<uint8_t[]>> allocate_bytes(uint64_t size_bytes);
// That, or the same somewhere else.
using Allocate = std::function<Result<std::shared_ptr<uint8_t[]>>(uint64_t size_bytes)>;

}  // namespace deltawire
