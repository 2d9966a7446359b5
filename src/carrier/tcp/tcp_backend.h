// Groups over TCP: one connection between any two ranks.
#pragma once

#include <memory>

#include "carrier/backend.h"

namespace deltawire {

std::shared_ptr<Backend> make_tcp_backend();

}  // namespace deltawire
