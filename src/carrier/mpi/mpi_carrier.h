// Carriers of groups that are there.
#pragma once

#include <memory>

#include "carrier/mpi/group.h"
#include "deltawire/carrier_mpi.h"

namespace deltawire::mpi {

std::unique_ptr<Carrier> make_carrier(Group group, uint64_t bucket_bytes);

// A copy of the one that is asked for, with as many ranks as there must be.
Result<std::shared_ptr<Communicator>> open_communicator(const MpiOptions& options);

}  // namespace deltawire::mpi
