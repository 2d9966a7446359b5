// MPI of this process: begun once, ended at exit if it was begun here.
#pragma once

#include <mpi.h>

#include <string>

#include "deltawire/status.h"

namespace deltawire::mpi {

// Begins MPI unless somebody has. Unavailable when it has ended.
Status begin();
// A group has failed: MPI_Finalize would wait for its ranks. It is not called, then.
void leave_unfinished() noexcept;
// InvalidArgument where this thread may not call MPI: it was begun for one thread alone.
Status check_thread();
bool has_ended() noexcept;

// What MPI says of an error of `doing`.
Status failure(int error, const std::string& doing);

}  // namespace deltawire::mpi
