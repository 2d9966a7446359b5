// A build without NCCL.
#include "deltawire/carrier_nccl.h"

namespace deltawire {
namespace {

Status not_built_in() {
  return unsupported("NCCL is not built in; build where CUDA and nccl.h are found");
}

}  // namespace

Result<std::string> nccl_unique_id() { return not_built_in(); }

Result<std::unique_ptr<Carrier>> make_nccl_carrier(const NcclOptions&) { return not_built_in(); }

}  // namespace deltawire
