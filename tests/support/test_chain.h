// Chains for tests, built without a Publisher: of checkpoints, or of records alone with sizes as a
// test wants them.
#pragma once

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/hop_records.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "chain/part_reader.h"
#include "chain/plan.h"
#include "checkpoints.h"
#include "codec/codec.h"
#include "delta/diff_states.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/checkpoint_files.h"
#include "format/delta_part.h"
#include "format/layout.h"
#include "support/hooked_store.h"

namespace deltawire::testing {

using State = std::vector<TestTensor>;  // sorted by name

// Keeps every version's checkpoint, so that a replica can be compared with it.
class TestChain {
 public:
  // In memory; what the chain does goes through hooks, what this class puts does not.
  explicit TestChain(ChainKeys keys = {})
      : memory(std::make_shared<MemoryStore>()),
        hooks(std::make_shared<HookedStore>(memory)),
        chain(create_chain(hooks, std::move(keys), false).value()),
        store_(memory) {
    hooks->has_clock = false;
  }
  explicit TestChain(std::shared_ptr<Store> store)
      : chain(create_chain(store, {}, false).value()), store_(std::move(store)) {}

  std::shared_ptr<Store> store() const { return store_; }
  fs::path checkpoint(uint64_t version) const {
    return folder_->path() / ("v" + std::to_string(version));
  }
  uint64_t head() const { return records.size() - 1; }
  Held held(uint64_t version) const { return {version, records[version].digest}; }

  // The next version, spread over `num_files` files with an index, or one model.safetensors.
  void publish_full(const State& tensors, size_t num_files = 1) {
    write(tensors, num_files);
    commit_checkpoint(true, put_files(records.size()));
  }
  void publish_delta(const State& tensors, const std::string& codec = "auto", size_t num_files = 1,
                     uint64_t part_bytes = kDefaultPartBytes) {
    write(tensors, num_files);
    commit_checkpoint(false, put_delta(head(), records.size(), codec, part_bytes));
  }
  // The same from parts that were made elsewhere.
  void publish_parts(const State& tensors, const std::vector<fs::path>& parts,
                     const std::map<std::string, std::vector<BoxDigest>>& boxes) {
    write(tensors, 1);
    const std::string folder = part_folder(records.size(), random_hex(8));
    std::vector<PartRef> refs;
    for (size_t i = 0; i < parts.size(); ++i) {
      refs.push_back(put(parts[i], folder + "part-0000" + std::to_string(i) + ".safetensors"));
    }
    commit_checkpoint(false, refs, boxes);
  }
  void publish(const State& tensors, bool full = false) {
    if (full || records.empty()) return publish_full(tensors);
    publish_delta(tensors, "auto", 1, 1);
  }
  // A small seed, or a version in which a few elements of the last state changed.
  void publish_step(bool full = false) {
    State next = {make_tensor("a", DType::kBF16, {8, 4}, 1), make_tensor("b", DType::kF32, {5}, 1),
                  make_tensor("c", DType::kU8, {3}, 1)};
    if (!states.empty()) {
      next = states.back();
      for (TestTensor& tensor : next) change(&tensor, 0.3, states.size());
      next[states.size() % 2].bytes[0] ^= 1;
    }
    publish(next, full);
  }

  // The next version as a record alone: no weights behind it.
  void add(uint64_t bytes, bool full = false) { commit(next(bytes, full || records.empty())); }
  Manifest next(uint64_t bytes, bool full) {
    if (schema_.name.empty()) schema_ = must(put_schema(chain, {{{"w", DType::kU8, {1}}}}));
    const uint64_t version = records.size();
    const std::string folder = full ? full_folder(version, "aa") : part_folder(version, "aa");
    Manifest m = draft(full, {{folder + "part-00000.safetensors", bytes, record_digest("part")}});
    m.schema = schema_;
    m.digests = {digest_of(DigestKind::kSum128, {})};
    m.state = m.digests[0];
    return m;
  }
  void commit(const Manifest& m) {
    const Commit committed = commit_version(chain, m);
    ASSERT_TRUE(committed.ok()) << committed.status.to_string();
    anchor_ = m.anchor;
    anchor_bytes_ = m.anchor_bytes;
    records.push_back({m, committed.digest});
  }

  // Versions published after an anchor know of it.
  void add_anchor(uint64_t version) {
    const std::vector<PartRef> parts = put_files(version);
    must(deltawire::add_hop(chain, nullptr, records[version], parts));
    uint64_t bytes = 0;
    for (const PartRef& part : parts) bytes += part.size_bytes;
    note_anchor(version, bytes);
  }
  void add_merged(uint64_t base, uint64_t version) {
    must(deltawire::add_hop(chain, &records[base], records[version],
                            put_delta(base, version, "auto", kDefaultPartBytes)));
  }
  // A hop as a record alone; from nothing without a base.
  HopName add_hop(std::optional<uint64_t> base, uint64_t version, uint64_t bytes) {
    hops.push_back(name_of(base, version, bytes));
    put_hop(hops.back(), hop_record(base, version, bytes));
    if (!base) note_anchor(version, bytes);
    return hops.back();
  }
  HopName name_of(std::optional<uint64_t> base, uint64_t version, uint64_t bytes) const {
    return {version, base, bytes, base ? records[*base].manifest.chain_bytes : 0,
            records[version].manifest.chain_bytes};
  }
  HopRecord hop_record(std::optional<uint64_t> base, uint64_t version, uint64_t bytes) const {
    HopRecord hop{
        .run = chain.run(), .version = version, .base = base, .manifest = records[version].digest};
    if (base) hop.base_manifest = records[*base].digest;
    hop.created = kCreated;
    const std::string folder = base ? part_folder(version, "bb") : full_folder(version, "bb");
    hop.parts = {{folder + "part-00000.safetensors", bytes, record_digest("hop")}};
    return hop;
  }
  void put_hop(const HopName& name, const HopRecord& hop) {
    must(store_->put(hop_name(name), MemoryBody(serialise_hop(hop, {}).value())));
  }

  // The manifests above `version` are gone, as in a store that was restored from an older copy.
  // What is published next grows another history. Returns them, to put_back().
  std::vector<std::pair<std::string, std::string>> lose_after(uint64_t version) {
    std::vector<std::pair<std::string, std::string>> lost;
    for (uint64_t v = version + 1; v < records.size(); ++v) {
      lost.emplace_back(manifest_name(v), store_->get(manifest_name(v), kMaxManifestBytes).value());
      must(store_->remove(manifest_name(v)));
    }
    records.resize(version + 1);
    states.resize(version + 1);
    anchor_ = records.back().manifest.anchor;
    anchor_bytes_ = records.back().manifest.anchor_bytes;
    return lost;
  }
  void put_back(const std::vector<std::pair<std::string, std::string>>& lost) {
    for (const auto& [name, text] : lost) must(store_->put(name, MemoryBody(text)));
  }

  PartRef put(const fs::path& file, const std::string& object) {
    return put_text(object, read_file(file));
  }

  std::shared_ptr<MemoryStore> memory;
  std::shared_ptr<HookedStore> hooks;
  Chain chain;
  std::vector<State> states;  // of versions with weights
  std::vector<VersionRecord> records;
  std::vector<HopName> hops;  // those that are records alone
  // Changes the manifest of the next commit: for stores that lie.
  std::function<void(Manifest*)> tamper;

 private:
  static constexpr const char* kCreated = "2026-11-15T05:36:24Z";

  PartRef put_text(const std::string& object, const std::string& text) {
    must(store_->put(object, MemoryBody(text)));
    return {object, text.size(), record_digest(text)};
  }

  void note_anchor(uint64_t version, uint64_t bytes) {
    if (version < anchor_) return;
    anchor_ = version;
    anchor_bytes_ = bytes;
  }

  void write(const State& tensors, size_t num_files) {
    const fs::path folder = checkpoint(records.size());
    if (num_files > 1) {
      write_sharded(folder, tensors, num_files);
    } else {
      fs::create_directories(folder);
      std::vector<TensorSpec> specs;
      std::string data;
      for (const TestTensor& tensor : tensors) {
        specs.push_back({tensor.name, tensor.dtype, tensor.shape});
        data.append(tensor.bytes.begin(), tensor.bytes.end());
      }
      // Not by a SafetensorsWriter, which waits for the disk.
      std::ofstream(folder / "model.safetensors", std::ios::binary)
          << serialise_safetensors_header(specs, {{"format", "pt"}}).value() << data;
      std::ofstream(folder / "config.json") << "{}\n";
    }
    states.push_back(tensors);
  }

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
    std::vector<std::pair<std::vector<EntryRecord>, std::string>> parts(1);
    const auto add = [&](DeltaEntry entry, const std::vector<uint8_t>& payload) {
      if (parts.back().second.size() >= part_bytes) parts.emplace_back();
      auto& [entries, payloads] = parts.back();
      entries.push_back(
          {std::move(entry), payload.size(), digest_of(DigestKind::kXxh3_128, payload)});
      payloads.append(payload.begin(), payload.end());
      return Status();
    };
    ThreadPool pool(1);
    const DeltaSummary diff = must(
        diff_states(views(states[base]), views(states[version]), {.codec = codec}, {}, &pool, add));
    const std::string folder = part_folder(version, random_hex(8));
    std::vector<PartRef> refs;
    for (const auto& [entries, payloads] : parts) {
      refs.push_back(put_text(folder + "part-0000" + std::to_string(refs.size()) + ".safetensors",
                              serialise_part_header(diff.info, entries).value() + payloads));
    }
    return refs;
  }
  static std::vector<TensorView> views(const State& state) {
    std::vector<TensorView> views;
    for (const TestTensor& tensor : state) {
      views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
    }
    std::ranges::sort(views, {}, &TensorView::name);
    return views;
  }

  // Files beside the weights: what the last version has is named again, the rest is put.
  std::vector<SideFile> put_sides(uint64_t version) {
    std::vector<SideFile> files;
    for (const auto& item : fs::directory_iterator(checkpoint(version))) {
      const std::string name = item.path().filename().string();
      if (is_weights_file(name)) continue;
      const std::string text = read_file(item.path());
      SideFile file{name, text.size(), record_digest(text), side_attempt(version, random_hex(8))};
      const SideFile* there = nullptr;
      if (!records.empty()) {
        for (const SideFile& one : records.back().manifest.files) {
          if (one.sha256 == file.sha256) there = &one;
        }
      }
      if (there != nullptr) {
        file.attempt = there->attempt;
      } else {
        put(item.path(), side_object(file).name);
      }
      files.push_back(std::move(file));
    }
    std::ranges::sort(files, {}, &SideFile::name);
    return files;
  }

  Manifest draft(bool full, std::vector<PartRef> parts) const {
    Manifest m{.run = chain.run(),
               .version = records.size(),
               .kind = full ? VersionKind::kFull : VersionKind::kDelta};
    if (full) m.reason = "test";
    if (!full) m.base = m.version - 1;
    if (!records.empty()) m.parent = records.back().digest;
    m.created = kCreated;
    m.publisher = "test:1";
    m.codec = "auto";
    m.parts = std::move(parts);
    m.chain_bytes = (records.empty() ? 0 : records.back().manifest.chain_bytes) + m.part_bytes();
    m.anchor = full ? m.version : anchor_;
    m.anchor_bytes = full ? m.part_bytes() : anchor_bytes_;
    return m;
  }

  void commit_checkpoint(bool full, std::vector<PartRef> parts,
                         const std::map<std::string, std::vector<BoxDigest>>& boxes = {}) {
    Manifest m = draft(full, std::move(parts));
    m.files = put_sides(m.version);
    m.boxes = boxes;
    Schema schema;
    for (const TensorView& view : views(states.back())) {
      schema.tensors.push_back({view.name, view.dtype, view.shape});
      const auto of_boxes = boxes.find(view.name);
      m.digests.push_back(of_boxes == boxes.end()
                              ? digest_of(DigestKind::kSum128, view.bytes)
                              : boxes_digest(of_boxes->second, view.bytes.size()).value());
    }
    m.schema = put_schema(chain, schema).value();
    m.state = state_digest(states_of(schema, m).value());
    if (tamper) std::exchange(tamper, nullptr)(&m);
    commit(m);
  }

  std::shared_ptr<Store> store_;
  std::shared_ptr<TempFolder> folder_ = std::make_shared<TempFolder>();
  PartRef schema_;
  uint64_t anchor_ = 0, anchor_bytes_ = 0;
};

// Fetches and applies a plan as a replica would.
inline Result<State> follow_plan(Store& store, const Plan& plan, State state) {
  for (const Hop& hop : plan.hops) {
    for (const PartRef& part : hop.parts) {
      DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read_part(store, part, {}));
      if (!hop.base) {
        if (!part.name.ends_with(".safetensors")) continue;
        DW_ASSIGN_OR_RETURN(const SafetensorsView view, parse_safetensors(bytes));
        state.clear();
        for (const TensorView& tensor : view.tensors) {
          state.push_back({tensor.name,
                           tensor.dtype,
                           tensor.shape,
                           {tensor.bytes.begin(), tensor.bytes.end()}});
        }
        continue;
      }
      DW_ASSIGN_OR_RETURN(const DeltaPart parsed, parse_part(bytes));
      for (const PayloadView& view : parsed.entries) {
        for (TestTensor& tensor : state) {
          if (tensor.name != view.entry.tensor) continue;
          DW_RETURN_IF_ERROR(
              find_codec(view.entry.codec)
                  ->apply(layout_of(tensor.dtype), view.payload, tensor.bytes, nullptr));
        }
      }
    }
  }
  return state;
}

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
