#include "chain/keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/ed25519.h"
#include "base/file.h"
#include "base/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kPrivate = "deltawire-private ", kPublic = "deltawire-public ";
constexpr uint64_t kMaxKeyFileBytes = 1 << 20;
constexpr mode_t kOwnerOnly = 0600, kEveryone = 0644;

// A new file, durable, never an old one overwritten.
Status write_new_file(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0 && errno == EEXIST) {
    return conflict(path.string() + ": is already there; a key is never overwritten");
  }
  if (fd < 0) return io_error(path.string() + ": cannot create: " + std::strerror(errno));
  const bool written =
      ::write(fd, text.data(), text.size()) == ssize_t(text.size()) && ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  if (!written) {
    ::unlink(path.c_str());
    return io_error(path.string() + ": cannot write: " + std::strerror(error));
  }
  return sync_directory(path.parent_path().empty() ? "." : path.parent_path());
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines = split_text(text, '\n');
  for (std::string_view& line : lines) line = line.substr(0, line.find_last_not_of("\r ") + 1);
  std::erase_if(lines, [](std::string_view line) { return line.empty() || line[0] == '#'; });
  return lines;
}

Result<PrivateKey> read_private_key(const std::filesystem::path& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return not_found(path.string() + ": cannot open: " + std::strerror(errno));
  }
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxKeyFileBytes));
  const auto lines = lines_of(text);
  if (!lines.empty() && lines[0].starts_with(kPublic)) {
    return invalid_argument(path.string() +
                            ": this is a public key; signing needs the private one, the file that "
                            "`deltawire keygen -o NAME` wrote beside it as NAME");
  }
  if ((info.st_mode & 077) != 0) {
    return invalid_argument(path.string() +
                            ": others may read or write this private key; chmod 600 it, or make a "
                            "new one if they did");
  }
  PrivateKey key;
  if (lines.size() != 1 || !lines[0].starts_with(kPrivate) ||
      !from_hex(lines[0].substr(kPrivate.size()), key)) {
    return invalid_argument(path.string() + ": not a private key of `deltawire keygen`");
  }
  return key;
}

Result<std::vector<PublicKey>> read_public_keys(const std::filesystem::path& path) {
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxKeyFileBytes));
  std::vector<PublicKey> keys;
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with(kPrivate)) {
      return invalid_argument(path.string() +
                              ": this is the private key; readers need the .pub file beside it");
    }
    PublicKey key;
    if (!line.starts_with(kPublic) || !from_hex(line.substr(kPublic.size()), key)) {
      return invalid_argument(path.string() + ": not a public key of `deltawire keygen`");
    }
    keys.push_back(key);
  }
  if (keys.empty()) return invalid_argument(path.string() + ": holds no key");
  return keys;
}

// Whether a signature is valid for its own key, trusted or not.
Status check_signature(std::string_view text, const Signature& signature, PublicKey* key) {
  SignatureBytes bytes;
  if (!from_hex(signature.key, *key) || !from_hex(signature.bytes, bytes)) {
    return corruption("signature: expected hex of a key and of an Ed25519 signature");
  }
  if (!verify_ed25519(*key, text, bytes)) {
    return corruption("signature: invalid; the record was changed after it was signed");
  }
  return {};
}

Verifier verifier_of(std::vector<PublicKey> keys) {
  return [keys = std::move(keys)](std::string_view text,
                                  const std::optional<Signature>& signature) -> Status {
    if (!signature) return corruption("signature: expected one by a trusted key, got none");
    PublicKey key;
    DW_RETURN_IF_ERROR(check_signature(text, *signature, &key));
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return corruption("signature: made by key " + to_hex(key) + ", which is not trusted");
    }
    return {};
  };
}

}  // namespace

Result<std::string> make_key_files(const std::filesystem::path& path) {
  DW_ASSIGN_OR_RETURN(const PrivateKey key, make_private_key());
  DW_ASSIGN_OR_RETURN(const PublicKey public_key, public_key_of(key));
  std::filesystem::path public_path = path;
  public_path += ".pub";
  const std::string hex = to_hex(public_key);
  DW_RETURN_IF_ERROR(write_new_file(path, std::string(kPrivate) + to_hex(key) + "\n", kOwnerOnly));
  Status status = write_new_file(public_path, std::string(kPublic) + hex + "\n", kEveryone);
  if (!status.ok()) {
    ::unlink(path.c_str());  // one without the other is of no use
    return status;
  }
  return hex;
}

Result<Signer> make_signer(const std::filesystem::path& private_key) {
  DW_ASSIGN_OR_RETURN(const PrivateKey key, read_private_key(private_key));
  DW_ASSIGN_OR_RETURN(const PublicKey public_key, public_key_of(key));
  return Signer([key, hex = to_hex(public_key)](std::string_view text) -> Result<Signature> {
    DW_ASSIGN_OR_RETURN(const SignatureBytes bytes, sign_ed25519(key, text));
    return Signature{hex, to_hex(bytes)};
  });
}

Result<Verifier> make_verifier(const std::filesystem::path& public_keys) {
  DW_ASSIGN_OR_RETURN(std::vector<PublicKey> keys, read_public_keys(public_keys));
  return verifier_of(std::move(keys));
}

Verifier check_signatures_only() {
  return [](std::string_view text, const std::optional<Signature>& signature) -> Status {
    PublicKey key;
    return signature ? check_signature(text, *signature, &key) : Status();
  };
}

Result<ChainKeys> read_keys(const Keys& files) {
  // So that no missing key ends the signing.
  if (files.change == KeyChange::kNewKey && files.sign.empty()) {
    return invalid_argument(
        "the key is to change, but no signing key is given: give the new key, or \"unsigned\" to "
        "stop signing");
  }
  if (files.change == KeyChange::kUnsigned && !files.sign.empty()) {
    return invalid_argument(files.sign.string() +
                            ": a signing key and \"unsigned\" exclude each other");
  }
  ChainKeys options;
  options.change_key = files.change != KeyChange::kNone;
  options.keys_chosen = !files.trust.empty();
  if (options.keys_chosen) {
    DW_ASSIGN_OR_RETURN(options.trust, make_verifier(files.trust));
  }
  if (files.sign.empty()) return options;
  if (!options.trust) options.trust = check_signatures_only();
  DW_ASSIGN_OR_RETURN(options.sign, make_signer(files.sign));
  const std::string_view probe = "deltawire";
  DW_ASSIGN_OR_RETURN(const Signature own, options.sign(probe));
  options.key = own.key;
  if (!options.trust(probe, own).ok()) {
    return invalid_argument(files.sign.string() + ": its public key is not among those in " +
                            files.trust.string());
  }
  return options;
}

bool is_signed_for(const Chain& chain, const std::string& signed_by) {
  const ChainKeys& options = keys_of(chain);
  if (options.key.empty() || signed_by == options.key) return true;
  // Both keys are in the list: by it the record was read, and ours was looked for.
  return options.keys_chosen && !signed_by.empty();
}

Status check_key(const Chain& chain, const Manifest& upon) {
  const bool leaves_signing = keys_of(chain).key.empty() && !upon.signed_by.empty();
  if (keys_of(chain).change_key) return {};
  if (!leaves_signing && is_signed_for(chain, upon.signed_by)) return {};
  const std::string place = chain.store().url() + ": version " + std::to_string(upon.version) + " ";
  const std::string& own = keys_of(chain).key;
  if (own.empty()) {
    return invalid_argument(place + "is signed with key " + upon.signed_by +
                            ", but the new record would be unsigned");
  }
  if (upon.signed_by.empty()) {
    return invalid_argument(place + "is not signed, but the new record would be, with key " + own +
                            ": someone without the key wrote it");
  }
  return invalid_argument(place + "is signed with key " + upon.signed_by +
                          ", but the new record would be signed with " + own);
}

}  // namespace deltawire
