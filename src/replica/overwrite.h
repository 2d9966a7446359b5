// Advances a replica without a delta, for callers that have the version's bytes: the changes are
// written over what is held, without a journal. Until the last byte is written, state.json has
// `patching_to` without a journal; a process that finds this reads the version from the chain.
// Nothing is synced, because the chain has the same data. Use this only for copies that nobody else
// reads and that are checked by digest when they are used, such as a publisher's snapshot.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "deltawire/replica.h"
#include "deltawire/store.h"
#include "deltawire/tensor.h"

namespace deltawire {

// See offer_files().
using PlainFiles = std::map<std::string, std::shared_ptr<const Body>, std::less<>>;

// A tensor of the version.
struct NewContents {
  TensorView view;
  // elements changed since the held version, approximately: decides whether most pages differ
  uint64_t num_changed = 0;
};

// `changed`: every tensor that changed since the held version. Returns false, without touching
// anything, if this shortcut does not apply: deltas must lead from the held version to this one,
// tensors must keep their forms, side files must be the same, and no file may have been edited.
// After an error the replica reads the version from the chain.
Result<bool> overwrite(Replica* replica, uint64_t version, std::span<const NewContents> changed);

// Plain files of a whole version, by the names of the packed objects. A pull copies them instead of
// fetching and unpacking those objects, and checks them like fetched ones.
void offer_files(Replica* replica, PlainFiles files);

}  // namespace deltawire
