#include "cli/chain_args.h"

#include "cli/store_options.h"

namespace deltawire::cli {

void add_chain_args(Command* verb, ChainArgs* args) {
  verb->add_option("STORE", args->store, "a folder, or s3://BUCKET/PREFIX")->required();
  verb->add_option("--trust", args->trust,
                   "refuse records that no key in this file has signed (deltawire keygen)");
  add_store_options(verb, &args->store_options);
}

Result<Chain> open_chain(const ChainArgs& args) {
  DW_ASSIGN_OR_RETURN(auto store, open_store(args.store, args.store_options));
  return Chain::open(std::move(store), {.trust = args.trust});
}

Result<uint64_t> head_of(const Chain& chain) {
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
  if (!head) return not_found(chain.store().url() + ": nothing was published yet");
  return *head;
}

nlohmann::ordered_json parts_json(const std::vector<PartRef>& parts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PartRef& part : parts) {
    list.push_back(
        {{"name", part.name}, {"bytes", part.size_bytes}, {"sha_256", part.sha256.hex()}});
  }
  return list;
}

}  // namespace deltawire::cli
