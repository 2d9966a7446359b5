// MPI's ranks as a group. In a library of its own, deltawire_mpi (CMake: deltawire::mpi), so that
// nobody else needs an MPI. docs/carriers.md says how to start it.
#pragma once

#include <memory>
#include <optional>

#include "deltawire/carrier.h"

namespace deltawire {

struct MpiOptions {
  // A communicator by its number in Fortran (MPI_Comm_c2f, or comm.py2f() of mpi4py), which every
  // MPI and every language has. A copy is made of it, so that nothing of others comes in between.
  // None: all processes of the job.
  std::optional<int> communicator = {};
  unsigned size = 0;                           // ranks that there must be; 0: any number
  double timeout_seconds = 60;                 // for all ranks to come
  uint64_t bucket_bytes = uint64_t{32} << 20;  // of memory that bytes wait in, for each direction
};

// All ranks of the communicator call it at the same time, with the same options. Begins MPI where
// nobody has, for calls of any thread, and ends at exit what it began, if all processes of the job
// come for it within ten seconds. InvalidArgument when there are more or fewer ranks than `size`;
// Unavailable when some do not come.
//
// exchange() of two ranks needs no others: the first of one meets the first of the other. It names
// the ranks that are late and goes on without them from then on. A broadcast needs all; after one
// that failed the group is of no use. After any failure MPI's own end is left out, because it waits
// for ever. Bytes of a call that failed may still travel, in memory that is the group's own: what a
// caller gave is never read or written after the call.
Result<std::unique_ptr<Carrier>> make_mpi_carrier(const MpiOptions& options = {});

// Groups over MPI for all that form them by name ("mpi"): of any processes of the communicator, in
// any order, as they come and go. Every process of the communicator calls this once, at the same
// time.
Status add_mpi_backend(const MpiOptions& options = {});

}  // namespace deltawire
