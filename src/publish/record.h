// What a publisher, or one rank of several, has put towards a version: enough for whoever commits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chain/chain.h"
#include "deltawire/publisher.h"
#include "diff/hash_state.h"
#include "format/manifest.h"

namespace deltawire {

struct PublishRecord {
  std::vector<PieceRecord> pieces;  // the new state, all of it
  std::vector<PartRef> parts;       // what carries the changes
};

// Names of tensors that one state has and the other has not, or has with another shape or dtype.
struct SchemaChange {
  std::vector<std::string> added, removed, reshaped;

  bool empty() const { return added.empty() && removed.empty() && reshaped.empty(); }
};
SchemaChange compare_schemas(const Schema& before, const Schema& after);
// The same for people, with a few of the names.
std::string describe_change(const Schema& before, const Schema& after);

// The new state of a version, from what all publishers say of theirs.
struct NewState {
  Schema schema;
  std::vector<Digest> digests;  // in the order of the schema
  std::map<std::string, std::vector<BoxDigest>> boxes;
  SchemaChange change;  // since the parent
  uint64_t num_changed_tensors = 0, num_elements = 0, num_changed = 0;

  bool unchanged = false;  // nothing differs from the parent
};

// Joins the pieces into one state. InvalidArgument when the pieces of a tensor disagree about it,
// overlap or leave a part of it out: names the tensor and, where several publish, the ranks.
// A tensor whose boxes did not change keeps the digests it had.
Result<NewState> join_pieces(const std::vector<PublishRecord>& ranks, const ParentState& parent);

// What a manifest says of the state.
void describe_state(const NewState& state, Manifest* manifest);

// The step that makes a version exist.

// Runs the hook, asks `check` whether to go on, then commits.
Commit commit_version(const Chain& chain, const Manifest& manifest, const PublishOptions& options,
                      const std::function<Status()>& check);

}  // namespace deltawire
