#include "publish/record.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/command.h"
#include "tensor/box.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

struct RankPiece {
  const PieceRecord* piece;
  size_t rank;
};

std::string box_text(const Box& box) { return box.whole() ? "all of it" : box_to_string(box); }

std::string from(size_t rank, size_t num_ranks) {
  return num_ranks == 1 ? "" : " (rank " + std::to_string(rank) + ")";
}

std::string from_all(const std::vector<RankPiece>& pieces, size_t num_ranks) {
  constexpr size_t kNamed = 16;
  std::set<size_t> ranks;
  for (const RankPiece& piece : pieces) ranks.insert(piece.rank);
  if (num_ranks == 1) return "";
  std::string text;
  size_t named = 0;
  for (const size_t rank : ranks) {
    if (named++ == kNamed) break;
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return " (ranks " + text + (ranks.size() > kNamed ? ", ...)" : ")");
}

// Checks that the pieces of one tensor agree and cover it exactly.
Status check_pieces(const std::vector<RankPiece>& pieces, size_t num_ranks) {
  const PieceRecord& first = *pieces[0].piece;
  const std::string place = "tensor " + quote(first.name) + ": ";
  uint64_t covered = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PieceRecord& piece = *pieces[i].piece;
    if (!same_form(piece, first)) {
      return invalid_argument(place + form_of(first) + from(pieces[0].rank, num_ranks) + " and " +
                              form_of(piece) + from(pieces[i].rank, num_ranks));
    }
    for (size_t other = 0; other < i; ++other) {
      if (!overlap(pieces[other].piece->box, piece.box)) continue;
      return invalid_argument(place + box_text(pieces[other].piece->box) +
                              from(pieces[other].rank, num_ranks) + " and " + box_text(piece.box) +
                              from(pieces[i].rank, num_ranks) + " overlap");
    }
    covered += num_elements(box_shape(piece.box, piece.shape)).value();
  }
  const uint64_t all = num_elements(first.shape).value();
  if (covered == all) return {};
  return invalid_argument(place + "its boxes" + from_all(pieces, num_ranks) + " cover " +
                          std::to_string(covered) + " of " + std::to_string(all) + " elements");
}

// The index of this tensor in the parent, if it has the same form.
std::optional<size_t> find_same(const ParentState& parent, const PieceRecord& piece) {
  if (parent.schema == nullptr) return {};
  const TensorSpec* tensor = find_tensor(parent.schema->tensors, piece.name);
  if (tensor == nullptr || !same_form(*tensor, piece)) return {};
  return size_t(tensor - parent.schema->tensors.data());
}

Status add_digest(const std::vector<RankPiece>& pieces, bool changed, const ParentState& parent,
                  NewState* state) {
  const PieceRecord& first = *pieces[0].piece;
  if (first.box.whole()) {
    state->digests.push_back(first.digest);
    return {};
  }
  const std::optional<size_t> before = find_same(parent, first);
  if (before && !changed) {
    state->digests.push_back(parent.manifest->digests[*before]);
    const auto boxes = parent.manifest->boxes.find(first.name);
    if (boxes != parent.manifest->boxes.end()) state->boxes[first.name] = boxes->second;
    return {};
  }
  const bool summed = std::all_of(pieces.begin(), pieces.end(), [](const RankPiece& piece) {
    return piece.piece->sums.has_value();
  });
  std::vector<BoxDigest> boxes;
  for (const RankPiece& piece : pieces) {
    boxes.push_back({piece.piece->box, piece.piece->digest, {}});
    if (summed) boxes.back().sums = piece.piece->sums;
  }
  DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(first.dtype, first.shape));
  Result<Digest> digest = boxes_digest(boxes, size);
  if (!digest.ok()) return std::move(digest).status().at("tensor " + quote(first.name));
  state->digests.push_back(*digest);
  state->boxes[first.name] = std::move(boxes);
  return {};
}

// "38 added ("a", "b", "c", ...)"
std::string some_of(const std::vector<std::string>& names, const std::string& what,
                    const std::function<std::string(const std::string&)>& text) {
  constexpr size_t kNamed = 3;
  std::string all = std::to_string(names.size()) + what + " (";
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
    all += (i == 0 ? "" : ", ") + text(names[i]);
  }
  return all + (names.size() > kNamed ? ", ...)" : ")");
}

}  // namespace

SchemaChange compare_schemas(const Schema& before, const Schema& after) {
  SchemaChange change;
  for (const TensorSpec& tensor : after.tensors) {
    const TensorSpec* const old = find_tensor(before.tensors, tensor.name);
    if (old == nullptr) {
      change.added.push_back(tensor.name);
    } else if (*old != tensor) {
      change.reshaped.push_back(tensor.name);
    }
  }
  for (const TensorSpec& tensor : before.tensors) {
    if (find_tensor(after.tensors, tensor.name) == nullptr) change.removed.push_back(tensor.name);
  }
  return change;
}

std::string describe_change(const Schema& before, const Schema& after) {
  const SchemaChange change = compare_schemas(before, after);
  std::string text;
  const auto add = [&](const std::vector<std::string>& names, const std::string& what,
                       const std::function<std::string(const std::string&)>& one) {
    if (names.empty()) return;
    const std::string noun = !text.empty() ? "" : names.size() == 1 ? " tensor" : " tensors";
    text += (text.empty() ? "" : ", ") + some_of(names, noun + what, one);
  };
  add(change.added, " added", quote);
  add(change.removed, " removed", quote);
  add(change.reshaped, " with another shape or dtype", [&](const std::string& name) {
    return quote(name) + ": " + form_of(*find_tensor(after.tensors, name)) + ", was " +
           form_of(*find_tensor(before.tensors, name));
  });
  return text;
}

Result<NewState> join_pieces(const std::vector<PublishRecord>& ranks, const ParentState& parent) {
  std::map<std::string_view, std::vector<RankPiece>> tensors;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const PieceRecord& piece : ranks[rank].pieces) {
      tensors[piece.name].push_back({&piece, rank});
    }
  }
  NewState state;
  for (auto& [name, pieces] : tensors) {
    DW_RETURN_IF_ERROR(check_pieces(pieces, ranks.size()));
    std::sort(pieces.begin(), pieces.end(), [](const RankPiece& a, const RankPiece& b) {
      return a.piece->box.offset < b.piece->box.offset;
    });
    bool changed = false;
    for (const RankPiece& piece : pieces) {
      changed = changed || piece.piece->changed;
      state.num_elements += piece.piece->num_elements;
      state.num_changed += piece.piece->num_changed;
    }
    state.num_changed_tensors += changed;
    const PieceRecord& first = *pieces[0].piece;
    state.schema.tensors.push_back(first);
    DW_RETURN_IF_ERROR(add_digest(pieces, changed, parent, &state));
  }
  if (parent.schema != nullptr) {
    state.change = compare_schemas(*parent.schema, state.schema);
    state.unchanged = state.num_changed_tensors == 0 && state.change.empty();
  }
  return state;
}

void describe_state(const NewState& state, Manifest* manifest) {
  manifest->digests = state.digests;
  manifest->boxes = state.boxes;
  manifest->elements = state.num_elements;
  manifest->changed = state.num_changed;
  manifest->state = state_digest(states_of(state.schema, *manifest).value());  // counts agree
}

namespace {

// All bytes are in the store; this only asks whether to continue.
bool keep_going(const Manifest& manifest, const PublishOptions& options) {
  return !options.progress || options.progress(manifest.part_bytes(), manifest.part_bytes());
}

Status run_hook(const Chain& chain, const Manifest& manifest, const PublishOptions& options) {
  const Hook& hook = options.hook_before_commit;
  if (hook.command.empty()) return {};
  Status status =
      run_command(hook.command, {{{"DELTAWIRE_VERSION", std::to_string(manifest.version)},
                                  {"DELTAWIRE_STORE", chain.store().url()},
                                  {"DELTAWIRE_RUN", chain.run()}},
                                 hook.timeout_seconds,
                                 [&] { return !keep_going(manifest, options); }});
  if (status.ok() && !keep_going(manifest, options)) status = cancelled("stopped on request");
  if (status.ok()) return {};
  // A refusal by the hook is not a conflict with another publisher.
  const Code code = status.code() == Code::kConflict ? Code::kCancelled : status.code();
  return Status(code, "hook before the commit of version " + std::to_string(manifest.version) +
                          ": " + status.message() + "; nothing was committed");
}

}  // namespace

Commit commit_version(const Chain& chain, const Manifest& manifest, const PublishOptions& options,
                      const std::function<Status()>& check) {
  Status status = run_hook(chain, manifest, options);
  if (status.ok()) status = check();
  if (!status.ok()) return {Outcome::kNot, std::move(status), {}};
  return commit_version(chain, manifest);
}

}  // namespace deltawire
