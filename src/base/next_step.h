// What to do about a failure. One table for programs, the command line tool and Python.
#pragma once

#include <string_view>

#include "deltawire/status.h"

namespace deltawire {

struct NextStep {
  std::string_view words;  // of the message; the first row whose words are in it counts
  std::string_view next;   // names no flags: the CLI adds them. Empty: the message says it already
  Code code = Code::kOk;   // only in failures of this kind; kOk: in any
};

// The row of the table for this failure; null: only its code says what to do.
const NextStep* find_next_step(const Status& status);
// What helps with most failures of this kind; empty: look at what the message says.
std::string_view usual_next_step(Code code);

}  // namespace deltawire
