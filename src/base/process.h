// Names of this host and process, for records and messages.
#pragma once

#include <string>

namespace deltawire {

std::string host_name();
std::string process_name();  // "HOST:PID"

}  // namespace deltawire
