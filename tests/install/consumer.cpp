// A program outside the tree that uses only what is installed.
#include <deltawire/chain.h>
#include <deltawire/delta.h>
#include <deltawire/digest.h>
#include <deltawire/maintain.h>
#include <deltawire/progress.h>
#include <deltawire/publisher.h>

#include <cstdio>
#include <memory>
#include <vector>

namespace dw = deltawire;

namespace {

// Publishes five versions; inspects, plans, pins, merges, checks and collects them.
dw::Status use_a_chain() {
  DW_ASSIGN_OR_RETURN(const std::shared_ptr<dw::Store> store,
                      dw::open_store("memory:consumer", {}));
  DW_ASSIGN_OR_RETURN(dw::Publisher publisher, dw::Publisher::open(store));
  std::vector<uint8_t> weights(100000);
  for (uint8_t step = 0; step < 5; ++step) {
    weights[step] = 1;
    dw::PublishTensor tensor;
    tensor.view = {"w", dw::DType::kU8, {100000}, weights};
    DW_RETURN_IF_ERROR(publisher.publish({&tensor, 1}).status());
  }
  DW_ASSIGN_OR_RETURN(const dw::Chain chain, dw::Chain::open(store));
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, chain.versions());
  DW_ASSIGN_OR_RETURN(const dw::VersionRecord second, chain.version(1));
  DW_ASSIGN_OR_RETURN(const dw::Plan plan, chain.plan(1));
  DW_RETURN_IF_ERROR(chain.pin(1));
  DW_ASSIGN_OR_RETURN(const dw::CompactReport compacted, dw::compact_chain(chain, {}));
  DW_ASSIGN_OR_RETURN(const dw::AnchorReport anchored, dw::make_anchor(chain, {}, {}));
  DW_ASSIGN_OR_RETURN(const dw::GcReport collected, chain.collect_garbage({.keep = 2}));
  DW_ASSIGN_OR_RETURN(const dw::FsckReport checked, dw::fsck_chain(chain));
  std::printf("%zu versions, %zu hops, %s\n", versions.size(), plan.hops.size(),
              checked.sound() ? "sound" : checked.problems[0].c_str());
  const bool as_expected = versions.size() == 5 && second.manifest.changed == 1 &&
                           plan.hops.size() == 3 && anchored.version == 4 && checked.sound() &&
                           compacted.merged.size() == 1 && collected.head == 4;
  return as_expected ? dw::Status() : dw::internal_error("not what was published");
}

}  // namespace

int main() {
  dw::set_log_sink(dw::LogLevel::kWarning, [](const dw::LogRecord& record) {
    std::fprintf(stderr, "%s\n", dw::format_log_text(record).c_str());
  });

  dw::Hasher hasher(dw::DigestKind::kXxh3_128);
  hasher.update("deltawire");
  const bool same = hasher.finish().hex() == "cf216a14312a6a80d4b4a6f2fd16f17c";

  // Links every layer with its libraries.
  const auto report = dw::diff_checkpoints("no-such-old", "no-such-new", "delta", {});
  std::puts(report.ok() ? "a delta of nothing" : report.status().to_string().c_str());
  const dw::Status used = use_a_chain();
  if (!used.ok()) std::puts(used.to_string().c_str());
  return same && used.ok() && report.status().code() == dw::Code::kNotFound ? 0 : 1;
}
