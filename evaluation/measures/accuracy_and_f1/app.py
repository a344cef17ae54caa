"""The page of the Space."""

if __name__ == "__main__":
    import evaluate
    from evaluate.utils import launch_gradio_widget

    launch_gradio_widget(evaluate.load("accuracy_and_f1"))
