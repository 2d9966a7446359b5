// Answers what replicas ask about the objects of a store. They may read all of it, and put nothing
// but heartbeats.
#pragma once

#include <string_view>

#include "deltawire/store.h"
#include "ship/messages.h"

namespace deltawire {

// What replicas may put and remove.
bool is_heartbeat_name(std::string_view name);

// The answer to a message with "ask": its number, and "op". Every failure is an answer, too.
Message answer_ask(Store& store, const Message& ask);

}  // namespace deltawire
