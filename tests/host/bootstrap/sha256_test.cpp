// Against the vectors of FIPS 180-4 and RFC 4231.
#include "util/sha256.hpp"
#include "util/hex.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

using namespace devcomm::host::detail;

namespace {

std::string hash(const std::string& text) { return to_hex(sha256::of(bytes_of(text))); }

std::string mac(std::span<const std::byte> key, const std::string& text) {
  return to_hex(hmac_sha256(key).update(bytes_of(text)).finish());
}

}  // namespace

TEST_CASE("sha256 gives the standard's digests") {
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256 does not depend on how the data is cut") {
  const std::string text(300, 'x');
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const digest d = sha256()
                         .update(bytes_of(std::string_view(text).substr(0, cut)))
                         .update(bytes_of(std::string_view(text).substr(cut)))
                         .finish();
    REQUIRE(to_hex(d) == hash(text));
  }
}

TEST_CASE("hmac_sha256 gives the RFC's codes, for short and long keys") {
  CHECK(mac(std::vector<std::byte>(20, std::byte{0x0b}), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(mac(bytes_of("Jefe"), "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(mac(std::vector<std::byte>(131, std::byte{0xaa}), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("same_digest sees a difference of one bit anywhere") {
  const digest a = sha256::of(bytes_of("a"));
  CHECK(same_digest(a, a));
  for (std::size_t i = 0; i < a.size(); ++i) {
    digest b = a;
    b[i] ^= std::byte{0x10};
    CHECK_FALSE(same_digest(a, b));
  }
}
