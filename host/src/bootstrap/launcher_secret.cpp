#include "bootstrap/launcher_secret.hpp"

#include "bootstrap/launcher_values.hpp"
#include "util/hex.hpp"
#include "util/random.hpp"
#include "util/sha256.hpp"
#include "util/unique_fd.hpp"

#include <devcomm/host/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

namespace devcomm::host::detail {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw system_error("the file " + path + ", from which jobs of this user on this host take their secret, " + problem +
                     "; or set DEVCOMM_SECRET, the same on all ranks");
}

/// Nothing where there is no file yet.
std::optional<user_key> read_key(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) fail(path, std::string("cannot be read: ") + std::strerror(errno) + "; remove it");
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) fail(path, std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) {
    fail(path, "was made by user " + std::to_string(facts.st_uid) + " and not by this one; have it removed");
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) fail(path, "is open to other users; remove it");
  user_key key;
  if (::read(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
    fail(path, "does not hold a key; remove it");
  }
  return key;
}

/// Whole from the moment it has its name. Somebody else may have been faster.
void make_key(const std::string& path) {
  const std::string draft = path + "." + to_hex(random_value<std::array<std::byte, 8>>());
  const unique_fd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file) fail(path, std::string("cannot be made: ") + std::strerror(errno));
  const auto key = random_value<user_key>();
  const bool written = ::fchmod(file.get(), S_IRUSR | S_IWUSR) == 0 &&
                       ::write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size());
  const bool named = written && ::link(draft.c_str(), path.c_str()) == 0;
  const int problem = errno;
  ::unlink(draft.c_str());
  if (!named && !(written && problem == EEXIST)) fail(path, std::string("cannot be made: ") + std::strerror(problem));
}

job_secret first_bytes(const digest& hash) {
  job_secret secret;
  std::memcpy(secret.data(), hash.data(), secret.size());
  return secret;
}

}  // namespace

user_key key_of_user(const std::string& folder) {
  const std::string path = folder + "/devcomm-" + std::to_string(::geteuid()) + ".key";
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (const auto key = read_key(path)) return *key;
    make_key(path);
  }
  fail(path, "is removed as often as it is made; see what removes it");
}

std::string key_folder() {
  struct stat facts {};
  const bool there = ::stat("/dev/shm", &facts) == 0 && S_ISDIR(facts.st_mode) && ::access("/dev/shm", W_OK) == 0;
  return there ? "/dev/shm" : "/tmp";
}

launcher_secret choose_secret(const environment& variables, const launched_process& process,
                              const ask_store& key_in_store, const std::string& folder) {
  if (const auto given = variables("DEVCOMM_SECRET")) {
    launcher_secret chosen;
    if (!from_hex(*given, chosen.secret)) {
      throw invalid_argument("DEVCOMM_SECRET has " + std::to_string(given->size()) +
                             " characters that are not 32 hexadecimal digits; expected the output of, for example, "
                             "\"openssl rand -hex 16\", the same on all ranks");
    }
    return chosen;
  }
  if (process.size == 1) return {random_value<job_secret>(), {}};

  // Of the address the port alone: ranks may name the host differently.
  const endpoint root = parse_endpoint(process.root, "the address of rank 0");
  const std::string text = "devcomm secret\n" + process.job + "\n" + std::to_string(root.port);
  const auto keyed = [&](std::span<const std::byte> key) {
    return launcher_secret{first_bytes(hmac_sha256(key).update(bytes_of(text)).finish()), {}};
  };
  const bool mpi = process.launcher == "mpirun";
  const auto launchers = mpi ? first_set(variables, {"OMPI_MCA_orte_precondition_transports"})
                             : first_set(variables, {"PMI_SHARED_SECRET"});
  const bool gives_one = mpi || process.launcher == "pals" || process.launcher == "srun";
  if (gives_one && launchers) return keyed(bytes_of(*launchers));
  if (is_loopback(root.host) && !process.several_hosts) return keyed(key_of_user(folder));
  if (!process.store.empty()) return keyed(key_in_store(parse_endpoint(process.store, "the address of the store")));
  return {first_bytes(sha256::of(bytes_of(text))),
          "devcomm: others can guess the secret of this job, made of its address and of what its launcher (" +
              process.launcher + ") sets: whoever reaches rank 0 at " + process.root +
              " can join it. Set DEVCOMM_SECRET to the output of \"openssl rand -hex 16\", the same on all ranks\n"};
}

}  // namespace devcomm::host::detail
