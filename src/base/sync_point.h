// Points where a crash test may kill the process: around every step that is visible to other
// processes or after a restart.
#pragma once

#include <deltawire_faults.h>

namespace deltawire {

// Counts the points passed by this process, from 1. DELTAWIRE_CRASH_AT=N: SIGKILL at the N-th.
// DELTAWIRE_CRASH_LOG=FILE: appends a line "N name" for each. Thread-safe.
void pass_sync_point(const char* name) noexcept;

}  // namespace deltawire

#if DELTAWIRE_FAULTS
#define DW_SYNC_POINT(name) ::deltawire::pass_sync_point(name)
#else
#define DW_SYNC_POINT(name) static_cast<void>(0)
#endif
