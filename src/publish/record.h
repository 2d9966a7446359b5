// What a publisher, or one rank of several, has put for a version: enough to commit it.
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
  std::vector<PieceRecord> pieces;  // of the complete new state
  std::vector<PartRef> parts;       // with the changes
};

// The tensors that were added, removed, or given another shape or dtype.
struct SchemaChange {
  std::vector<std::string> added, removed, reshaped;

  bool empty() const { return added.empty() && removed.empty() && reshaped.empty(); }
};
SchemaChange compare_schemas(const Schema& before, const Schema& after);
// A description for users, with some of the names.
std::string describe_change(const Schema& before, const Schema& after);

// The new state of a version, joined from all publishers.
struct NewState {
  Schema schema;
  std::vector<Digest> digests;  // in the order of the schema
  std::map<std::string, std::vector<BoxDigest>> boxes;
  SchemaChange change;  // since the parent
  uint64_t num_changed_tensors = 0, num_elements = 0, num_changed = 0;

  bool unchanged = false;  // nothing differs from the parent
};

// Joins the pieces into one state. InvalidArgument if the pieces of a tensor disagree, overlap or
// do not cover it: names the tensor and, if there are several, the ranks. A tensor whose boxes did
// not change keeps its digests.
Result<NewState> join_pieces(const std::vector<PublishRecord>& ranks, const ParentState& parent);

// Copies the state into the manifest.
void describe_state(const NewState& state, Manifest* manifest);

// The commit.

// Runs the hook, calls `check`, then commits.
Commit commit_version(const Chain& chain, const Manifest& manifest, const PublishOptions& options,
                      const std::function<Status()>& check);

}  // namespace deltawire
