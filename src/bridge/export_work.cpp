#include "bridge/export_work.h"

#include <cstring>

#include "base/folder.h"
#include "base/guard.h"
#include "base/json.h"
#include "base/mapping.h"
#include "format/manifest.h"
#include "format/tensor_digest.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr uint64_t kMaxMarkerBytes = 4096;

}  // namespace

Status check_target(const Chain& chain, const Dialect& dialect, Store& target,
                    const std::vector<uint64_t>& versions) {
  const Result<std::string> text = target.get(kExportMarker, kMaxMarkerBytes);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  if (!text.ok()) {
    if (versions.empty()) return {};
    return conflict(target.url() + ": holds version " + std::to_string(versions.back()) +
                    ", which was not written by an export; export to an empty destination");
  }
  const nlohmann::json json = parse_json(*text);
  const std::string run = string_in(json, "run"), name = string_in(json, "dialect");
  if (run == chain.run() && name == dialect.name()) return {};
  return conflict(target.url() + ": holds an export of run " + run + " as " + name +
                  ", not of run " + chain.run() + " as " + std::string(dialect.name()) +
                  "; export to an empty destination");
}

Status mark_target(const Chain& chain, const Dialect& dialect, Store& target) {
  const nlohmann::json json = {{"run", chain.run()}, {"dialect", std::string(dialect.name())}};
  const std::string text = json_text(json) + "\n";
  return target.put(kExportMarker, MemoryBody(text));
}

Status check_exported(const ForeignVersion& version, const Checkpoint& held, const Store& target,
                      ThreadPool* pool) {
  const ForeignInfo& info = version.info();
  return parallel_try("hashing", pool, info.tensors.size(), [&](size_t i, unsigned) -> Status {
    const ForeignTensor& tensor = info.tensors[i];
    if (!tensor.checksum) return {};
    const CheckpointTensor* const own = held.find(tensor.name);
    if (own != nullptr && checksum_of(tensor.checksum->kind, own->view.bytes) == *tensor.checksum) {
      return {};
    }
    return conflict(target.url() + ": version " + std::to_string(info.version) + ", tensor " +
                    quote(tensor.name) +
                    ": differs from the chain; export to an empty destination");
  });
}

Result<DescribedVersion> describe_version(const Chain& chain, uint64_t version) {
  DescribedVersion described;
  DW_ASSIGN_OR_RETURN(described.record, chain.version(version));
  DW_ASSIGN_OR_RETURN(described.schema, chain.schema(described.record.manifest));
  return described;
}

ExportWork::ExportWork(const Chain& chain, std::filesystem::path folder, uint64_t memory_bytes,
                       unsigned threads, Progress progress)
    : chain_(chain),
      folder_(std::move(folder)),
      progress_(std::move(progress)),
      pool_(threads),
      scratch_(folder_, memory_bytes) {}

Result<const Checkpoint*> ExportWork::bring_to(uint64_t version) {
  if (!replica_) {
    DW_RETURN_IF_ERROR(make_folder(folder_ / "model"));
    ReplicaOptions options;
    options.limits.threads = pool_.num_workers();
    options.heartbeat = false;
    options.sync_files = false;  // every tensor is checked before it is used
    options.accept = {.trust = chain_.keys().trust, .run = chain_.run()};
    options.progress = progress_;
    DW_ASSIGN_OR_RETURN(Replica opened, Replica::open(chain_.shared_store(), folder_ / "model",
                                                      std::move(options)));
    replica_.emplace(std::move(opened));
  }
  if (at_ == version) return &*checkpoint_;
  at_.reset();
  checkpoint_.reset();
  DW_ASSIGN_OR_RETURN(const PullReport report, replica_->pull(version));
  DW_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::open(report.path));
  at_ = version;
  return &*checkpoint_;
}

Status ExportWork::prove(const DescribedVersion& version, const std::string& name,
                         Bytes bytes) const {
  const Manifest& manifest = version.record.manifest;
  const TensorSpec* const known = find_tensor(version.schema.tensors, name);
  if (known == nullptr) return internal_error("tensor " + quote(name) + " is not of the version");
  const Digest got = tensor_digest(known->dtype, known->shape, bytes, boxes_hashed(manifest, name));
  const Digest& expected = manifest.digests[size_t(known - version.schema.tensors.data())];
  if (got == expected) return {};
  return base_mismatch(folder_.string() + ", tensor " + quote(name) + " of version " +
                       std::to_string(manifest.version) + ": expected " + expected.hex() +
                       ", got " + got.hex());
}

Result<ExportWork::Step> ExportWork::step_once(const DescribedVersion* before,
                                               const DescribedVersion& now,
                                               const std::vector<std::string>& names) {
  Step step;
  if (before != nullptr) {
    DW_ASSIGN_OR_RETURN(const Checkpoint* held, bring_to(before->record.manifest.version));
    std::vector<uint64_t> sizes;
    for (const std::string& name : names) {
      const CheckpointTensor* const tensor = held->find(name);
      if (tensor == nullptr) return base_mismatch(folder_.string() + ": lost a tensor");
      sizes.push_back(tensor->view.bytes.size());
    }
    DW_ASSIGN_OR_RETURN(step.old_bytes, scratch_.make(sizes));
    DW_RETURN_IF_ERROR(
        parallel_try("copying", &pool_, names.size(), [&](size_t i, unsigned) -> Status {
          const MutableBytes copy = step.old_bytes[i];
          copy_out(held->find(names[i])->view.bytes.data(), copy.data(), copy.size());
          return prove(*before, names[i], copy);
        }));
    DW_RETURN_IF_ERROR(scratch_.check());
  }
  DW_ASSIGN_OR_RETURN(step.now, bring_to(now.record.manifest.version));
  DW_RETURN_IF_ERROR(
      parallel_try("hashing", &pool_, names.size(), [&](size_t i, unsigned) -> Status {
        const CheckpointTensor* const tensor = step.now->find(names[i]);
        if (tensor == nullptr) return base_mismatch(folder_.string() + ": lost a tensor");
        return prove(now, names[i], tensor->view.bytes);
      }));
  return step;
}

Status ExportWork::discard() {
  checkpoint_.reset();
  replica_.reset();
  at_.reset();
  return remove_tree(folder_ / "model");
}

// If the work folder is damaged, rebuilds the model from the chain once.
Result<ExportWork::Step> ExportWork::step(const DescribedVersion* before,
                                          const DescribedVersion& now,
                                          const std::vector<std::string>& names) {
  Result<Step> taken = step_once(before, now, names);
  if (taken.status().code() != Code::kBaseMismatch) return taken;
  DW_RETURN_IF_ERROR(discard());
  return step_once(before, now, names);
}

}  // namespace deltawire
