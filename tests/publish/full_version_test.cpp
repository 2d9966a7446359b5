// Full versions: plain checkpoint directories, streamed from wherever the tensors are.
#include "publish/full_version.h"

#include "checkpoints.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "store/directory_store.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"

namespace deltawire::testing {
namespace {

WholeTensor whole(const TestTensor& tensor) {
  return {{tensor.name, tensor.dtype, tensor.shape},
          {{{}, std::make_shared<MemoryBody>(Bytes(tensor.bytes))}}};
}

class FullVersionTest : public ::testing::Test {
 protected:
  std::vector<TestTensor> tensors = {
      make_tensor("a", DType::kBF16, {40, 30}, 1), make_tensor("b", DType::kF32, {7, 11}, 2),
      make_tensor("c", DType::kU8, {5}, 3), make_tensor("empty", DType::kBF16, {0, 4}, 4),
      make_tensor("scalar", DType::kF64, {}, 5)};
  TempFolder folder;

  void put(std::vector<FullFile> files) {
    DirectoryStore store(folder.path() / "store");
    FullUpload upload(store, "full/x/", std::move(files), {}, {});
    const auto parts = must(upload.finish());
    for (const PartRef& part : parts) {
      const std::string text = read_file(folder.path() / "store" / part.name);
      EXPECT_EQ(part.size_bytes, text.size());
      EXPECT_EQ(part.sha256, digest_of(DigestKind::kSha256, testing::as_bytes(text)));
    }
  }
  fs::path result() const { return folder.path() / "store" / "full" / "x"; }
  void expect_same() {
    write_checkpoint(folder.path() / "expected.safetensors", tensors);
    const auto report =
        must(verify_checkpoints(folder.path() / "expected.safetensors", result(), {}));
    EXPECT_TRUE(report.differences.empty());
    EXPECT_EQ(report.num_tensors, tensors.size());
  }
};

TEST_F(FullVersionTest, SmallModelsAreOneFile) {
  std::vector<WholeTensor> wholes;
  for (const TestTensor& tensor : tensors) wholes.push_back(whole(tensor));
  const auto files = must(lay_out_checkpoint(wholes));
  ASSERT_EQ(files.size(), 1);
  EXPECT_EQ(files[0].name, "model.safetensors");
  put(files);
  expect_same();
  const auto checkpoint = must(Checkpoint::open(result()));
  // transformers requires it, and every element is aligned.
  EXPECT_EQ(checkpoint.files()[0].metadata, (Metadata{{"format", "pt"}}));
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    EXPECT_EQ(tensor.offset % (dtype_bits(tensor.view.dtype) / 8), 0) << tensor.view.name;
  }
}

TEST_F(FullVersionTest, PeftAdaptersGetTheirFileName) {
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj.";
  const auto file_name = [](const std::vector<std::string>& names) {
    std::vector<WholeTensor> wholes;
    for (const std::string& name : names) {
      wholes.push_back(whole(make_tensor(name, DType::kF32, {4, 8}, 1)));
    }
    const auto files = lay_out_checkpoint(wholes, 1);
    return files.ok() && files->size() == 1 ? (*files)[0].name : std::string();
  };
  const std::string a = module + "lora_A.weight", b = module + "lora_B.weight";
  EXPECT_EQ(file_name({a, b}), "adapter_model.safetensors") << "never in several files";
  EXPECT_EQ(file_name({a, b, "base_model.model.score.weight"}), "adapter_model.safetensors");
  EXPECT_EQ(file_name({a, b, "base_model.model.model.embed_tokens.base_layer.weight"}),
            "adapter_model.safetensors");
  // A model with an adapter inside, other names, no LoRA: ordinary checkpoints.
  EXPECT_EQ(file_name({module + "lora_A.default.weight"}), "model.safetensors");
  EXPECT_EQ(file_name({"model." + a}), "model.safetensors");
  EXPECT_EQ(file_name({"base_model.model.score.weight"}), "model.safetensors");
}

TEST_F(FullVersionTest, LargeModelsAreShardedWithAnIndex) {
  DW_LABEL(long);
  std::vector<WholeTensor> wholes;
  for (const TestTensor& tensor : tensors) wholes.push_back(whole(tensor));
  const auto files = must(lay_out_checkpoint(wholes, 1000));
  ASSERT_EQ(files.size(), 3);
  EXPECT_EQ(files[0].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(files[2].name, "model.safetensors.index.json");
  put(files);
  expect_same();
}

TEST_F(FullVersionTest, JoinsBoxesOfRanks) {
  std::vector<std::vector<uint8_t>> kept;
  std::vector<WholeTensor> wholes;
  for (const TestTensor& tensor : tensors) {
    wholes.push_back(whole(tensor));
    if (tensor.shape.size() != 2 || tensor.bytes.empty()) continue;
    wholes.back().pieces.clear();
    const uint64_t rows = tensor.shape[0], columns = tensor.shape[1];
    for (const Box& box :
         {Box{{0, 0}, {rows, columns / 3}},
          Box{{0, columns / 3}, {rows / 2, columns - columns / 3}},
          Box{{rows / 2, columns / 3}, {rows - rows / 2, columns - columns / 3}}}) {
      kept.emplace_back(tensor_size_bytes(tensor.dtype, box.extent).value());
      copy_box_out(box, tensor.dtype, tensor.shape, tensor.bytes, kept.back());
      wholes.back().pieces.push_back({box, std::make_shared<MemoryBody>(Bytes(kept.back()))});
    }
  }
  const auto files = must(lay_out_checkpoint(wholes));
  // At every offset, in pieces of every size, as a store that retries reads it.
  const Body& body = *files[0].body;
  std::vector<uint8_t> all(body.size());
  ASSERT_TRUE(body.read(0, all).ok());
  for (uint64_t at = 0; at < body.size(); at += 97) {
    std::vector<uint8_t> piece(std::min<uint64_t>(1 + at % 301, body.size() - at));
    ASSERT_TRUE(body.read(at, piece).ok());
    ASSERT_TRUE(std::equal(piece.begin(), piece.end(), all.begin() + ptrdiff_t(at))) << at;
  }
  put(files);
  expect_same();
}

TEST_F(FullVersionTest, CheckpointsOnDiskKeepTheirFiles) {
  write_sharded(folder.path() / "ckpt", tensors, 2);
  const auto checkpoint = must(Checkpoint::open(folder.path() / "ckpt"));
  auto files = must(files_of_checkpoint(checkpoint, contents_of(tensors_of(checkpoint), nullptr)));
  put(files);
  for (const char* name :
       {"a-00001.safetensors", "a-00002.safetensors", "model.safetensors.index.json"}) {
    EXPECT_EQ(read_file(result() / name), read_file(folder.path() / "ckpt" / name)) << name;
  }
}

// These names are not valid in the store or for every reader.
TEST_F(FullVersionTest, RenamesWeightsFilesWithInvalidNames) {
  for (const std::string name : {"ä b.safetensors", "current", "v0000000001", "weights.bin"}) {
    fs::remove_all(folder.path() / "ckpt");
    fs::remove_all(folder.path() / "store");
    write_sharded(folder.path() / "ckpt", tensors, 1);
    fs::rename(folder.path() / "ckpt" / "a-00001.safetensors", folder.path() / "ckpt" / name);
    std::vector<IndexEntry> index;
    for (const TestTensor& tensor : tensors) index.push_back({tensor.name, name});
    ASSERT_TRUE(write_index(folder.path() / "ckpt", index, 1).ok());
    const auto checkpoint = must(Checkpoint::open(folder.path() / "ckpt"));
    const auto files =
        must(files_of_checkpoint(checkpoint, contents_of(tensors_of(checkpoint), nullptr)));
    EXPECT_EQ(files[0].name, "model.safetensors") << name;
    put(files);
    expect_same();
  }
}

TEST_F(FullVersionTest, AbandonedUploadRemovesItsObjects) {
  MemoryStore store;
  {
    FullUpload upload(store, "full/x/", lay_out_checkpoint({whole(tensors[0])}).value(), {}, {});
    ASSERT_TRUE(upload.finish().ok());
    EXPECT_EQ(store.list("", "", 10)->size(), 1);
    upload.abandon();
  }
  EXPECT_TRUE(store.list("", "", 10)->empty());
  {
    const FullUpload upload(store, "full/x/", lay_out_checkpoint({whole(tensors[0])}).value(), {},
                            {});
  }
  EXPECT_TRUE(store.list("", "", 10)->empty());
}

// A put that never ends by itself: it stops when the upload is cancelled.
class EndlessStore final : public ForwardingStore {
 public:
  EndlessStore() : ForwardingStore(std::make_shared<MemoryStore>()) {}
  Status put(std::string_view, const Body& body) override {
    uint8_t byte = 0;
    begun = true;
    while (true) {
      DW_RETURN_IF_ERROR(body.read(0, {&byte, 1}));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::atomic<bool> begun{false};
};

TEST_F(FullVersionTest, CancelsAPutOnASlowLink) {
  EndlessStore store;
  const auto files = [&] { return *lay_out_checkpoint({whole(tensors[0])}); };
  {
    FullUpload upload(store, "full/x/", files(), {}, [&](uint64_t, uint64_t) -> bool {
      return !store.begun;  // Ctrl-C
    });
    EXPECT_FAILS(upload.finish(), kCancelled, "stopped");
  }
  FullUpload given_up(store, "full/y/", files(), {}, {});  // destroyed while it runs
}

}  // namespace
}  // namespace deltawire::testing
