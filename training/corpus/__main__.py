from training.corpus.build import main

main()
