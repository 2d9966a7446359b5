// Whether lists of an exchange can be taken: each by itself, and all together.
#pragma once

#include <span>

#include "base/thread_pool.h"
#include "deltawire/exchange.h"

namespace deltawire {

// InvalidArgument: an offset outside its array, offsets that do not ascend, an element in two
// lists.
Status check_exchange(std::span<const ExchangeList> lists, ThreadPool* pool);

}  // namespace deltawire
