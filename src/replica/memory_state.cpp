#include "replica/memory_state.h"

#include <cstring>

#include "base/waves.h"
#include "delta/apply_plan.h"
#include "format/checkpoint_files.h"
#include "format/delta_part.h"
#include "format/packed_file.h"
#include "format/tensor_digest.h"
#include "replica/limits.h"
#include "replica/plan_pull.h"
#include "tensor/form.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"
#include "transfer/fetch.h"

namespace deltawire {
namespace {

class BufferSink final : public Sink {
 public:
  explicit BufferSink(MutableBytes bytes) : bytes_(bytes) {}
  Status write(uint64_t offset, std::span<const uint8_t> bytes) override {
    if (offset > bytes_.size() || bytes.size() > bytes_.size() - offset) {
      return corruption("more bytes than expected");
    }
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
    return {};
  }

 private:
  const MutableBytes bytes_;
};

}  // namespace

Result<FetchedObject> fetch_object(Store& store, const PartRef& part, const Allocate& allocate) {
  FetchedObject buffer;
  DW_ASSIGN_OR_RETURN(buffer.owner, allocate(part.size_bytes));
  buffer.bytes = {buffer.owner.get(), part.size_bytes};
  BufferSink sink(buffer.bytes);
  DW_RETURN_IF_ERROR(store.download(part.name, part.size_bytes, &sink));
  const Digest got = digest_of(DigestKind::kSha256, buffer.bytes);
  if (got == part.sha256) return buffer;
  return corruption(store.url() + "/" + part.name + ": sha-256: expected " + part.sha256.hex() +
                    ", got " + got.hex());
}

Result<FetchedObject> fetch_checkpoint_file(Store& store, const PartRef& part,
                                            const Allocate& allocate, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(FetchedObject object, fetch_object(store, part, allocate));
  if (!is_packed_file(part.name)) return object;
  const auto unpacked = [&]() -> Result<FetchedObject> {
    DW_ASSIGN_OR_RETURN(const PackedFile packed, parse_packed(object.bytes));
    FetchedObject plain;
    DW_ASSIGN_OR_RETURN(plain.owner, allocate(packed.plain_bytes));
    plain.bytes = {plain.owner.get(), size_t(packed.plain_bytes)};
    DW_RETURN_IF_ERROR(unpack(packed, object.bytes, plain.bytes, pool));
    return plain;
  };
  Result<FetchedObject> plain = unpacked();
  if (!plain.ok()) return std::move(plain).status().at(store.url() + "/" + part.name);
  return plain;
}

Status add_checkpoint_file(const FetchedObject& file, MemoryState* state) {
  DW_ASSIGN_OR_RETURN(const SafetensorsView view, parse_safetensors(file.bytes));
  for (const TensorView& tensor : view.tensors) {
    const size_t offset = size_t(tensor.bytes.data() - file.bytes.data());
    MemoryTensor held{tensor.dtype, tensor.shape, {}, file.owner};
    if (!tensor.bytes.empty()) held.bytes = file.bytes.subspan(offset, tensor.bytes.size());
    if (!state->emplace(tensor.name, std::move(held)).second) {
      return corruption("tensor " + quote(tensor.name) + " is in two files");
    }
  }
  return {};
}

Status apply_entry(const DeltaEntry& entry, Bytes payload, const Allocate& allocate,
                   MemoryState* state, ThreadPool* pool) {
  if (!entry.old_digest) {  // brings a tensor whole
    const size_t size = size_t(entry.box_bytes());
    DW_ASSIGN_OR_RETURN(const auto owner, allocate(size));
    const MutableBytes bytes(owner.get(), size);
    (*state)[entry.tensor] = {entry.dtype, entry.shape, bytes, owner};
    return apply_entry(entry, payload, bytes, nullptr, pool);
  }
  const auto found = state->find(entry.tensor);
  if (found == state->end()) return base_mismatch("there is no such tensor");
  MemoryTensor& tensor = found->second;
  if (!same_form(tensor, entry)) {
    return base_mismatch("expected " + form_of(entry) + ", got " + form_of(tensor));
  }
  return apply_entry(entry, payload, tensor.bytes, nullptr, pool);
}

namespace {

Status apply_part(Bytes file, const Allocate& allocate, MemoryState* state, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const DeltaPart part, parse_part(file));
  for (const PayloadView& view : part.entries) {
    DW_RETURN_IF_ERROR(apply_entry(view.entry, view.payload, allocate, state, pool)
                           .at("tensor " + quote(view.entry.tensor)));
  }
  for (const std::string& name : part.info.removed) state->erase(name);
  return {};
}

}  // namespace

Status check_state(const Manifest& manifest, const Schema& schema, const MemoryState& state,
                   const std::set<std::string, std::less<>>* only, ThreadPool* pool) {
  DW_RETURN_IF_ERROR(states_of(schema, manifest).status());
  if (state.size() != schema.tensors.size()) {
    return corruption("expected " + std::to_string(schema.tensors.size()) + " tensors, got " +
                      std::to_string(state.size()));
  }
  std::vector<uint64_t> sizes;
  std::vector<const MemoryTensor*> tensors;
  for (const TensorSpec& expected : schema.tensors) {
    const auto found = state.find(expected.name);
    if (found == state.end() || found->second.dtype != expected.dtype ||
        found->second.shape != expected.shape) {
      return corruption("tensor " + quote(expected.name) + ": expected " + form_of(expected) +
                        ", but it is missing or has another form");
    }
    const bool wanted = only == nullptr || only->contains(expected.name);
    tensors.push_back(wanted ? &found->second : nullptr);
    sizes.push_back(wanted ? found->second.bytes.size() : 0);
  }
  const auto check = [&](size_t i, ThreadPool*) -> Status {
    if (tensors[i] == nullptr) return {};
    const TensorSpec& expected = schema.tensors[i];
    const Digest got = tensor_digest(expected.dtype, expected.shape, tensors[i]->bytes,
                                     boxes_hashed(manifest, expected.name));
    if (got == manifest.digests[i]) return {};
    return corruption("tensor " + quote(expected.name) + ": " + std::string(digest_name(got.kind)) +
                      ": expected " + manifest.digests[i].hex() + ", got " + got.hex());
  };
  return Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {}).run(check);
}

namespace {

// One attempt. Works part by part, so it needs no folder and holds only one part in addition to the
// model.
Attempted fetch_along(const Chain& chain, const Plan& plan, ThreadPool* pool,
                      const Progress& progress, uint64_t total, const Allocate& allocate,
                      MemoryState* state) {
  Store& store = chain.store();
  uint64_t done = 0;
  for (const Hop& hop : plan.hops) {
    for (const PartRef& part : hop.parts) {
      const bool weights = plain_file_name(part.name).ends_with(kSafetensorsSuffix);
      if (!hop.base && !weights) continue;
      const Result<FetchedObject> file = hop.base
                                             ? fetch_object(store, part, allocate)
                                             : fetch_checkpoint_file(store, part, allocate, pool);
      if (!file.ok()) {
        const bool bad = is_damaged_or_gone(file.status());
        return {file.status(), bad ? std::optional(part.name) : std::nullopt};
      }
      Status status = hop.base ? apply_part(file->bytes, allocate, state, pool)
                               : add_checkpoint_file(*file, state);
      if (!status.ok()) return {std::move(status).at(store.url() + "/" + part.name), {}};
      done += part.size_bytes;
      if (progress && !progress(done, total)) return {cancelled("stopped on request"), {}};
    }
  }
  return {check_state(plan.target.manifest, plan.schema, *state, nullptr, pool)
              .at(store.url() + ": version " + std::to_string(plan.target.manifest.version)),
          {}};
}

}  // namespace

Result<MemoryState> fetch_state(const Chain& chain, uint64_t version, ThreadPool* pool,
                                const Progress& progress, const Allocate& allocate) {
  MemoryState state;
  PullReport report;
  const AttemptGoal goal{version, true, true};
  DW_RETURN_IF_ERROR(go_around_bad_parts(
      true, chain.store().url(), &report, [&](const std::set<std::string>& avoid) -> Attempted {
        state.clear();
        const Result<Plan> plan = plan_pull(chain, {}, goal, {}, avoid, &report);
        if (!plan.ok()) return {plan.status(), {}};
        Status sizes = check_hop_sizes(plan->hops, plan->schema, 0);
        if (!sizes.ok()) return {std::move(sizes), {}};
        return fetch_along(chain, *plan, pool, progress, report.bytes, allocate, &state);
      }));
  return state;
}

}  // namespace deltawire
