// The next step after a failure: one table for programs, the command line tool and Python.
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
// The next step for most failures of this code; empty if only the message helps.
std::string_view usual_next_step(Code code);

}  // namespace deltawire
