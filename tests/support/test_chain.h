// A chain made by hand for the tests of replicas: versions from checkpoints, without a Publisher.
#pragma once

#include "base/bytes.h"
#include "base/file.h"
#include "base/process.h"
#include "chain/chain.h"
#include "chain/hop_records.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "checkpoints.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "deltawire/store.h"
#include "format/checkpoint_files.h"
#include "format/manifest.h"

namespace deltawire::testing {

// Keeps every version's checkpoint, so that a replica can be compared with it.
class TestChain {
 public:
  explicit TestChain(std::shared_ptr<Store> store)
      : store_(std::move(store)), chain_(create_chain(store_, {}, false).value()) {}

  std::shared_ptr<Store> store() const { return store_; }
  const Chain& chain() const { return chain_; }
  fs::path checkpoint(uint64_t version) const {
    return folder_.path() / ("v" + std::to_string(version));
  }
  uint64_t head() const { return records_.size() - 1; }
  const VersionRecord& record(uint64_t version) const { return records_[version]; }

  // The next version, spread over `num_files` files with an index, or one model.safetensors.
  void write(const std::vector<TestTensor>& tensors, size_t num_files) {
    const auto folder = checkpoint(records_.size());
    if (num_files > 1) {
      write_sharded(folder, tensors, num_files);
    } else {
      fs::create_directories(folder);
      write_checkpoint(folder / "model.safetensors", tensors);
      std::ofstream(folder / "config.json") << "{}\n";
    }
  }
  void publish_full(const std::vector<TestTensor>& tensors, size_t num_files = 1) {
    write(tensors, num_files);
    const uint64_t version = records_.size();
    commit(VersionKind::kFull, {}, put_files(version));
  }
  void publish_delta(const std::vector<TestTensor>& tensors, const std::string& codec = "auto",
                     size_t num_files = 1, uint64_t part_bytes = kDefaultPartBytes) {
    write(tensors, num_files);
    const uint64_t version = records_.size();
    commit(VersionKind::kDelta, version - 1, put_delta(version - 1, version, codec, part_bytes));
  }
  // The same from parts that were made elsewhere.
  void publish_parts(const std::vector<TestTensor>& tensors, const std::vector<fs::path>& parts,
                     const std::map<std::string, std::vector<BoxDigest>>& boxes) {
    write(tensors, 1);
    const uint64_t version = records_.size();
    const std::string folder = part_folder(version, random_hex(8));
    std::vector<PartRef> refs;
    for (size_t i = 0; i < parts.size(); ++i) {
      refs.push_back(put(parts[i], folder + "part-0000" + std::to_string(i) + ".safetensors"));
    }
    boxes_ = boxes;
    commit(VersionKind::kDelta, version - 1, refs);
  }

  // The manifests above `version` are gone, as in a store that was restored from an older copy.
  // What is published next grows another history. Returns them, to put_back().
  std::vector<std::pair<std::string, std::string>> lose_after(uint64_t version) {
    std::vector<std::pair<std::string, std::string>> lost;
    for (uint64_t v = version + 1; v < records_.size(); ++v) {
      lost.emplace_back(manifest_name(v), store_->get(manifest_name(v), kMaxManifestBytes).value());
      EXPECT_TRUE(store_->remove(manifest_name(v)).ok());
    }
    records_.resize(version + 1);
    return lost;
  }
  void put_back(const std::vector<std::pair<std::string, std::string>>& lost) {
    for (const auto& [name, text] : lost) ASSERT_TRUE(store_->put(name, MemoryBody(text)).ok());
  }

  void add_anchor(uint64_t version) {
    must(add_hop(chain_, nullptr, records_[version], put_files(version)));
  }
  void add_merged(uint64_t base, uint64_t version) {
    must(add_hop(chain_, &records_[base], records_[version],
                 put_delta(base, version, "auto", kDefaultPartBytes)));
  }

  // Changes the manifest of the next commit: for stores that lie.
  std::function<void(Manifest*)> tamper;

  PartRef put(const fs::path& file, const std::string& object) {
    const std::string text = read_file(file);
    EXPECT_TRUE(store_->put(object, MemoryBody(text)).ok());
    return {object, text.size(), digest_of(DigestKind::kSha256, as_bytes(text))};
  }

 private:
  std::vector<PartRef> put_files(uint64_t version) {
    const std::string folder = full_folder(version, random_hex(8));
    std::vector<PartRef> parts;
    for (const auto& item : fs::directory_iterator(checkpoint(version))) {
      parts.push_back(put(item.path(), folder + item.path().filename().string()));
    }
    return parts;
  }

  std::vector<PartRef> put_delta(uint64_t base, uint64_t version, const std::string& codec,
                                 uint64_t part_bytes) {
    const auto delta = folder_.path() / "delta";
    fs::remove_all(delta);
    DiffOptions options{.codec = codec, .part_bytes = part_bytes};
    must(diff_checkpoints(checkpoint(base), checkpoint(version), delta, options));
    const std::string folder = part_folder(version, random_hex(8));
    std::vector<PartRef> parts;
    for (const auto& item : fs::directory_iterator(delta)) {
      if (item.path().extension() != ".safetensors") continue;
      parts.push_back(put(item.path(), folder + item.path().filename().string()));
    }
    return parts;
  }

  // The files beside the weights, all anew.
  std::vector<SideFile> put_sides(uint64_t version) {
    const std::string attempt = side_attempt(version, random_hex(8));
    std::vector<SideFile> files;
    for (const auto& item : fs::directory_iterator(checkpoint(version))) {
      const std::string name = item.path().filename().string();
      if (is_weights_file(name)) continue;
      const std::string text = read_file(item.path());
      SideFile file{name, text.size(), digest_of(DigestKind::kSha256, as_bytes(text)), attempt};
      EXPECT_TRUE(store_->put(side_object(file).name, MemoryBody(text)).ok());
      files.push_back(std::move(file));
    }
    std::sort(files.begin(), files.end(),
              [](const SideFile& a, const SideFile& b) { return a.name < b.name; });
    return files;
  }

  void commit(VersionKind kind, std::optional<uint64_t> base, std::vector<PartRef> parts) {
    const uint64_t version = records_.size();
    Manifest m{.run = chain_.run(), .version = version, .base = base, .kind = kind};
    if (version > 0) m.parent = records_.back().digest;
    if (kind == VersionKind::kFull) m.reason = "seed";
    m.created = utc_now();
    m.publisher = process_name();
    m.parts = std::move(parts);
    m.files = put_sides(version);
    Schema schema;
    const auto opened = must(Checkpoint::open(checkpoint(version)));
    for (const CheckpointTensor& tensor : opened.tensors()) {
      schema.tensors.push_back({tensor.view.name, tensor.view.dtype, tensor.view.shape});
      m.digests.push_back(digest_of(DigestKind::kSum128, tensor.view.bytes));
    }
    m.boxes = std::exchange(boxes_, {});
    for (size_t i = 0; i < schema.tensors.size(); ++i) {
      const auto boxes = m.boxes.find(schema.tensors[i].name);
      if (boxes == m.boxes.end()) continue;
      const Schema::Tensor& tensor = schema.tensors[i];
      const uint64_t size = tensor_size_bytes(tensor.dtype, tensor.shape).value();
      m.digests[i] = boxes_digest(boxes->second, size).value();
    }
    m.schema = put_schema(chain_, schema).value();
    m.state = state_digest(states_of(schema, m).value());
    m.chain_bytes = m.part_bytes() + (version == 0 ? 0 : records_.back().manifest.chain_bytes);
    m.anchor = kind == VersionKind::kFull ? version : records_.back().manifest.anchor;
    m.anchor_bytes =
        kind == VersionKind::kFull ? m.part_bytes() : records_.back().manifest.anchor_bytes;
    m.codec = "auto";
    if (tamper) std::exchange(tamper, nullptr)(&m);
    const Commit committed = commit_version(chain_, m);
    ASSERT_TRUE(committed.ok()) << committed.status.to_string();
    records_.push_back({m, committed.digest});
  }

  std::shared_ptr<Store> store_;
  Chain chain_;
  TempFolder folder_;
  std::vector<VersionRecord> records_;
  std::map<std::string, std::vector<BoxDigest>> boxes_;
};

// Flips a bit of a tensor.
inline void edit_tensor(const fs::path& file, const std::string& tensor) {
  const uint64_t offset = must(Checkpoint::open(file)).find(tensor)->offset;
  flip_bit(file, offset + 5);
}

// Bit for bit the same tensors.
inline ::testing::AssertionResult is_identical(const fs::path& a, const fs::path& b) {
  const auto report = verify_checkpoints(a, b, {});
  if (!report.ok()) return ::testing::AssertionFailure() << report.status().to_string();
  if (report->differences.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << report->differences.size() << " tensors differ, first "
                                       << report->differences[0].tensor;
}

}  // namespace deltawire::testing
