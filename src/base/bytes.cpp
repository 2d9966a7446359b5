#include "base/bytes.h"

#include "base/guard.h"

namespace deltawire {

Result<std::shared_ptr<uint8_t[]>> allocate_bytes(uint64_t size_bytes) {
  return guard_memory("a large buffer", [&]() -> Result<std::shared_ptr<uint8_t[]>> {
    return std::shared_ptr<uint8_t[]>(new uint8_t[size_bytes]);
  });
}

}  // namespace deltawire
