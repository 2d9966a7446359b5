from deltawire.cli import main

main()
