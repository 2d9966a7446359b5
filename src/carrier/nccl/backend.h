// Groups over NCCL by name: the ticket is NCCL's id of the group, in hexadecimal digits.
#pragma once

#include <memory>

#include "carrier/backend.h"

namespace deltawire {

std::shared_ptr<Backend> make_nccl_backend();

}  // namespace deltawire
