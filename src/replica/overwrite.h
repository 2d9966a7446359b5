// A step to a later version for who has its bytes at hand: what changed is written over what is
// held, with no delta to decode and no journal. Until the last byte is written state.json says
// `patching_to` and there is no journal: who finds it so reads the version from the chain. Nothing
// is synced that the chain has too. So this is for copies that are checked by digest when they are
// used and that nobody else reads, such as a publisher's snapshot.
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

// As in offer_files().
using PlainFiles = std::map<std::string, std::shared_ptr<const Body>, std::less<>>;

// A tensor as the version has it.
struct NewContents {
  TensorView view;
  uint64_t num_changed = 0;  // elements since what is held, about: do most of its pages differ?
};

// `changed`: every tensor that a version since the held one has changed. False: this is no step for
// it, and nothing was touched: deltas have to lead there from the version that is held, with
// tensors of the same forms and the same files beside them, and files have to be as they were left.
// After an error the replica reads the version from the chain.
Result<bool> overwrite(Replica* replica, uint64_t version, std::span<const NewContents> changed);

// Files of a version that is stored whole, by the names of the packed objects. A pull copies them
// instead of fetching and unpacking those, and proves them like anything else.
void offer_files(Replica* replica, PlainFiles files);

}  // namespace deltawire
