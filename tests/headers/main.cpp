// Linking this program is the test.
int main() { return 0; }
